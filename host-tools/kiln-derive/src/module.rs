//! The implementation of `kiln::Module`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, GenericParam, Ident, Result, parse_quote};

/// The implementation for a struct or an enum.
pub(crate) fn derive(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    if let Some(attribute) = input.attrs.iter().find(|a| a.path().is_ident("module")) {
        return Err(Error::new(attribute.span(), "#[module(skip)] belongs on a field"));
    }
    let name = &input.ident;
    let arms = match &input.data {
        Data::Struct(data) => vec![arm(quote!(Self), &data.fields)?],
        Data::Enum(data) => (data.variants.iter())
            .map(|variant| {
                let ident = &variant.ident;
                arm(quote!(Self::#ident), &variant.fields)
            })
            .collect::<Result<Vec<_>>>()?,
        Data::Union(data) => {
            return Err(Error::new(data.union_token.span(), "a union can't be a module: use a struct or an enum"));
        }
    };
    // An enum without variants can't be matched through a reference.
    let body = if arms.is_empty() { quote!(match *self {}) } else { quote!(match self { #(#arms)* }) };

    let mut generics = input.generics.clone();
    for parameter in &mut generics.params {
        if let GenericParam::Type(parameter) = parameter {
            parameter.bounds.push(parse_quote!(::kiln::Module));
        }
    }
    let (implementation, types, bounds) = generics.split_for_impl();
    Ok(quote! {
        impl #implementation ::kiln::Module for #name #types #bounds {
            #[allow(unused_variables)]
            fn visit<KilnVisitor: ::kiln::Visitor>(
                &mut self,
                path: &::kiln::ModulePath<'_>,
                visitor: &mut KilnVisitor,
            ) {
                #body
            }
        }
    })
}

/// What is done with the fields of a struct or variant.
fn arm(name: TokenStream, fields: &Fields) -> Result<TokenStream> {
    let (mut patterns, mut visits) = (Vec::new(), Vec::new());
    for (number, field) in fields.iter().enumerate() {
        let skipped = is_skipped(field)?;
        let member = match &field.ident {
            Some(ident) => quote!(#ident),
            None => {
                let index = syn::Index::from(number);
                quote!(#index)
            }
        };
        if skipped {
            continue;
        }
        let binding = format_ident!("field_{number}");
        patterns.push(quote!(#member: #binding));
        let path = match &field.ident {
            Some(ident) => {
                let text = plain(ident);
                quote!(&path.field(#text))
            }
            None => quote!(&path.index(#number)),
        };
        // What is wrong with a field is said where its type stands.
        let ty = &field.ty;
        visits.push(quote_spanned!(ty.span()=> <#ty as ::kiln::Module>::visit(#binding, #path, visitor);));
    }
    Ok(quote!(#name { #(#patterns,)* .. } => { #(#visits)* }))
}

/// A field's name without the `r#` of names that are keywords.
fn plain(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").unwrap_or(&text).to_owned()
}

fn is_skipped(field: &Field) -> Result<bool> {
    let mut skipped = false;
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                skipped = true;
                return Ok(());
            }
            Err(meta.error("unknown: a field is visited, or left out with #[module(skip)]"))
        })?;
    }
    Ok(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(input: TokenStream) -> String {
        derive(input).map_or_else(|e| format!("error: {e}"), |tokens| tokens.to_string())
    }

    #[test]
    fn fields_are_visited_in_order_under_their_names() {
        let code = text(quote! {
            struct Net<M, const N: usize> { first: M, #[module(skip)] note: String, r#type: [M; N] }
        });
        assert!(code.contains("impl < M : :: kiln :: Module , const N : usize >"), "{code}");
        let (first, second) = (code.find("\"first\"").unwrap(), code.find("\"type\"").unwrap());
        assert!(first < second && !code.contains("note"), "{code}");
        let code = text(quote!(
            struct Pair(Linear, Linear);
        ));
        assert!(code.contains("0 : field_0") && code.contains("path . index (1usize)"), "{code}");
    }

    #[test]
    fn what_can_not_be_a_module_is_said() {
        let union = text(quote!(
            union U {
                a: u32,
            }
        ));
        assert_eq!(union, "error: a union can't be a module: use a struct or an enum");
        let unknown = text(quote!(
            struct S {
                #[module(ignore)]
                a: u32,
            }
        ));
        assert_eq!(unknown, "error: unknown: a field is visited, or left out with #[module(skip)]");
        let misplaced = text(quote!(
            #[module(skip)]
            struct S;
        ));
        assert_eq!(misplaced, "error: #[module(skip)] belongs on a field");
    }
}
