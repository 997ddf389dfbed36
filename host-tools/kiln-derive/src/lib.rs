//! `#[derive(Module)]`, which `kiln` re-exports and documents.

mod module;

/// Implements `kiln::Module`: every field is visited under its name, in the order of declaration.
///
/// Fields are modules themselves: layers, tensors, `Option`, `Vec`, arrays, boxes and tuples of modules, and other
/// structs that derive it. Numbers, truth and text are settings, which are passed over; a field of any other type
/// is left out with `#[module(skip)]`. The struct has to be `Clone`.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    module::derive(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
