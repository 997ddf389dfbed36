//! What a project depends on whose build script plans a model with `kiln-build`: [`include_model!`].
//!
//! `no_std`, no heap. `docs/build-script.md` shows the whole of such a project.

#![no_std]

pub use kiln_core;
pub use kiln_kernels;

/// Includes the model that the package's build script planned under this name, as a module with the items of a crate
/// from `kiln compile`: `Arena`, `Model`, `input`, `output`, `LABELS`, `ROWS`, `TARGET`, …
///
/// ```ignore
/// // build.rs has planned model/kws.tflite.
/// kiln_model::include_model!(pub mod kws);
///
/// let mut arena = kws::Arena::new();
/// let mut model = kws::Model::new(&mut arena)?;
/// ```
///
/// It does not compile in a package without a build script, or whose build script plans no model of this name.
#[macro_export]
macro_rules! include_model {
    ($(#[$attribute:meta])* $visibility:vis mod $name:ident $(;)?) => {
        $(#[$attribute])*
        // Scales come as they are, even where one happens to be close to pi; and a program need not use every item.
        #[allow(clippy::approx_constant, dead_code, unreachable_pub, unused_imports)]
        $visibility mod $name {
            pub use $crate::kiln_core;
            use $crate::kiln_kernels;

            ::core::include!(::core::concat!(
                ::core::env!(
                    "OUT_DIR",
                    "include_model! needs a build script that plans the model: give the package a build.rs with kiln-build"
                ),
                "/",
                ::core::stringify!($name),
                "/model.rs"
            ));
        }
    };
}
