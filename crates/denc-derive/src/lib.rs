//! `#[derive(Denc)]`: Ceph's encoding for structs whose wire form is their fields in order.
//!
//! On the struct:
//! - nothing: the fields, bare;
//! - `#[denc(v = 3, compat = 1)]`: the version envelope (u8 version, u8 compat, u32 length);
//!   `oldest = 2` refuses older encodings by name;
//! - `#[denc(byte_version = 1)]`: one u8 version and no length (a few old types).
//!
//! On a field:
//! - `#[denc(since = 2)]`: present from struct version 2 on, `Default` in older encodings;
//! - `#[denc(skip)]`: not on the wire, `Default` after decoding.

use proc_macro::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Fields, LitInt, parse_macro_input};

#[derive(Default)]
struct Layout {
    version: Option<u8>,
    compat: u8,
    oldest: u8,
    byte_version: Option<u8>,
}

#[derive(Default)]
struct FieldLayout {
    since: Option<u8>,
    skip: bool,
}

fn number(meta: &syn::meta::ParseNestedMeta<'_>) -> syn::Result<u8> {
    meta.value()?.parse::<LitInt>()?.base10_parse()
}

fn struct_layout(input: &DeriveInput) -> syn::Result<Layout> {
    let mut layout = Layout { compat: 1, ..Layout::default() };
    for attr in input.attrs.iter().filter(|a| a.path().is_ident("denc")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("v") {
                layout.version = Some(number(&meta)?);
            } else if meta.path.is_ident("compat") {
                layout.compat = number(&meta)?;
            } else if meta.path.is_ident("oldest") {
                layout.oldest = number(&meta)?;
            } else if meta.path.is_ident("byte_version") {
                layout.byte_version = Some(number(&meta)?);
            } else {
                return Err(meta.error("expected v, compat, oldest or byte_version"));
            }
            Ok(())
        })?;
    }
    Ok(layout)
}

fn field_layout(field: &syn::Field) -> syn::Result<FieldLayout> {
    let mut layout = FieldLayout::default();
    for attr in field.attrs.iter().filter(|a| a.path().is_ident("denc")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("since") {
                layout.since = Some(number(&meta)?);
            } else if meta.path.is_ident("skip") {
                layout.skip = true;
            } else {
                return Err(meta.error("expected since or skip"));
            }
            Ok(())
        })?;
    }
    Ok(layout)
}

/// See the crate's documentation.
#[proc_macro_derive(Denc, attributes(denc))]
pub fn derive_denc(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|e| e.to_compile_error()).into()
}

fn expand(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    let layout = struct_layout(input)?;
    let Data::Struct(data) = &input.data else {
        return Err(syn::Error::new_spanned(input, "derive(Denc) is for structs"));
    };
    let mut encode_fields = Vec::new();
    let mut decode_fields = Vec::new();
    let mut bindings = Vec::new();
    for (i, field) in data.fields.iter().enumerate() {
        let FieldLayout { since, skip } = field_layout(field)?;
        let binding = format_ident!("field_{i}");
        let access = match &field.ident {
            Some(name) => quote!(self.#name),
            None => {
                let index = syn::Index::from(i);
                quote!(self.#index)
            }
        };
        let ty = &field.ty;
        if skip {
            decode_fields.push(quote!(let #binding: #ty = ::core::default::Default::default();));
        } else {
            encode_fields.push(quote!(::denc::Denc::encode(&#access, w);));
            decode_fields.push(match since {
                Some(since) => quote! {
                    let #binding: #ty = if struct_v >= #since {
                        ::denc::Denc::decode(r)?
                    } else {
                        ::core::default::Default::default()
                    };
                },
                None => quote!(let #binding: #ty = ::denc::Denc::decode(r)?;),
            });
        }
        bindings.push((field.ident.clone(), binding));
    }
    let build = match &data.fields {
        Fields::Named(_) => {
            let pairs = bindings.iter().map(|(name, b)| quote!(#name: #b));
            quote!(Self { #(#pairs),* })
        }
        Fields::Unnamed(_) => {
            let values = bindings.iter().map(|(_, b)| b);
            quote!(Self(#(#values),*))
        }
        Fields::Unit => quote!(Self),
    };
    let name = &input.ident;
    let label = name.to_string();
    let (encode, decode) = if let Some(v) = layout.version {
        let (compat, oldest) = (layout.compat, layout.oldest);
        (
            quote!(w.envelope(#v, #compat, |w| { #(#encode_fields)* })),
            quote!(r.envelope(#label, #v, #oldest, |r, struct_v| {
                let _ = struct_v;
                #(#decode_fields)*
                Ok(#build)
            })),
        )
    } else if let Some(v) = layout.byte_version {
        (
            quote!(w.u8(#v); #(#encode_fields)*),
            quote! {
                let struct_v: u8 = r.u8()?;
                let _ = struct_v;
                #(#decode_fields)*
                Ok(#build)
            },
        )
    } else {
        (
            quote!(#(#encode_fields)*),
            quote! {
                #[allow(unused_variables)]
                let struct_v: u8 = u8::MAX;
                #(#decode_fields)*
                Ok(#build)
            },
        )
    };
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics ::denc::Denc for #name #ty_generics #where_clause {
            #[allow(unused_variables)]
            fn encode(&self, w: &mut ::denc::Writer) { #encode }
            fn decode(r: &mut ::denc::Reader<'_>) -> ::core::result::Result<Self, ::denc::Error> {
                #decode
            }
        }
    })
}
