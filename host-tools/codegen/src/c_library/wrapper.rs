//! The Rust side of a C library: functions around a model crate's methods.

use std::fmt::Write as _;

use super::face::Face;
use crate::model_crate::port::Side;

impl Face<'_> {
    /// The text of the library's `lib.rs`; the model's crate is called `model` in it.
    pub(super) fn wrapper(&self) -> String {
        let mut out = HEAD.replace("NAME", self.name);
        let name = self.name;
        for port in &self.ports {
            let rust = &port.rust;
            let (function, element) = (format!("{name}_{}", port.name), rust_element(port.element().0));
            let _ = match port.side {
                Side::Input => write!(
                    out,
                    "\n// SAFETY: no other symbol begins with this model's name.\n\
                     #[unsafe(no_mangle)]\n\
                     unsafe extern \"C\" fn {function}(model: *mut State) -> *mut {element} {{\n    \
                     // SAFETY: as the caller promises.\n    \
                     match unsafe {{ exclusive(model) }} {{\n        \
                     Some(model) => model.{rust}_mut().as_mut_ptr(),\n        \
                     None => core::ptr::null_mut(),\n    }}\n}}\n"
                ),
                Side::Output => write!(
                    out,
                    "\n// SAFETY: no other symbol begins with this model's name.\n\
                     #[unsafe(no_mangle)]\n\
                     unsafe extern \"C\" fn {function}(model: *const State) -> *const {element} {{\n    \
                     // SAFETY: as the caller promises.\n    \
                     match unsafe {{ shared(model) }} {{\n        \
                     Some(model) => model.{rust}().as_ptr(),\n        \
                     None => core::ptr::null(),\n    }}\n}}\n"
                ),
            };
        }
        for entry in &self.entries {
            out.push_str(&changing(&format!("{name}_{}", entry.name), "", &format!("model.{}();", entry.rust)));
            let hooked = format!(
                "match hook {{\n            \
                 // SAFETY: a function of the program's, called with the pointer that came with it.\n            \
                 Some(hook) => {{\n                model.{rust}_with(&mut |done: &Done<'_>| unsafe {{ hook(context, done.index) }});\n            }}\n            \
                 None => {{\n                model.{rust}();\n            }}\n        }}",
                rust = entry.rust
            );
            out.push_str(&changing(
                &format!("{name}_{}_with", entry.name),
                ", hook: Option<unsafe extern \"C\" fn(*mut c_void, u32)>, context: *mut c_void",
                &hooked,
            ));
        }
        for (function, rust, _) in &self.extents {
            let body = format!("if model.{rust}(value).is_err() {{\n            return ERROR_VALUE;\n        }}");
            out.push_str(&changing(&format!("{name}_{function}"), ", value: u32", &body));
        }
        out.push_str(&changing(&format!("{name}_reset"), "", "model.reset();"));
        out
    }
}

/// A function that does something with a model that is ready, and says whether it was.
fn changing(function: &str, parameters: &str, body: &str) -> String {
    format!(
        "\n// SAFETY: no other symbol begins with this model's name.\n\
         #[unsafe(no_mangle)]\n\
         unsafe extern \"C\" fn {function}(model: *mut State{parameters}) -> i32 {{\n    \
         // SAFETY: as the caller promises.\n    \
         if let Some(model) = unsafe {{ exclusive(model) }} {{\n        \
         {body}\n        OK\n    }} else {{\n        ERROR_MODEL\n    }}\n}}\n"
    )
}

/// The Rust type of an element that C calls so.
fn rust_element(c: &str) -> &'static str {
    match c {
        "float" => "f32",
        "double" => "f64",
        "int8_t" => "i8",
        "int16_t" => "i16",
        "int32_t" => "i32",
        "int64_t" => "i64",
        "uint16_t" => "u16",
        "uint32_t" => "u32",
        "uint64_t" => "u64",
        _ => "u8",
    }
}

/// Numbers of errors, in the header as well.
pub(super) const CODES: [(&str, &str); 5] = [
    ("OK", "Done."),
    ("ERROR_POINTER", "A pointer is NULL or not aligned."),
    ("ERROR_PLAN", "The constants are not those that were compiled: the flash image is damaged."),
    ("ERROR_MODEL", "The model is not ready: init has not been called with it, or has failed."),
    ("ERROR_VALUE", "A dimension was set outside its bounds."),
];

const HEAD: &str = r#"//! Written by Kiln: a model's functions for C. The header says what they promise and demand.
#![no_std]

use core::ffi::c_void;
use core::mem::MaybeUninit;

use model::kiln_core::Done;
use model::{Arena, Model};

const OK: i32 = 0;
const ERROR_POINTER: i32 = 1;
const ERROR_PLAN: i32 = 2;
const ERROR_MODEL: i32 = 3;
#[allow(dead_code)]
const ERROR_VALUE: i32 = 4;

/// What `ready` holds in a model that is.
const READY: u32 = 0x6b69_6c6e;

/// A model in memory of the program's.
#[repr(C)]
struct State {
    ready: u32,
    model: MaybeUninit<Model<'static>>,
}

/// Size and alignment of a model, which the header is written with.
// SAFETY: no other symbol begins with this model's name.
#[unsafe(no_mangle)]
static NAME_layout: [u32; 2] = [size_of::<State>() as u32, align_of::<State>() as u32];

// Nothing here panics, so it is dropped; the compiler wants it all the same.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The model at `state`, if one is there.
///
/// # Safety
///
/// `state` is null or leads to memory of the size of a `State`, which nothing writes meanwhile.
unsafe fn shared<'a>(state: *const State) -> Option<&'a Model<'static>> {
    if state.is_null() || !state.is_aligned() {
        return None;
    }
    // SAFETY: it may be read as the caller promises; `ready` has this value only once `init` has written the model.
    unsafe { ((&raw const (*state).ready).read() == READY).then(|| (*state).model.assume_init_ref()) }
}

/// The same, to be changed.
///
/// # Safety
///
/// As for [`shared`], and nothing reads it meanwhile.
unsafe fn exclusive<'a>(state: *mut State) -> Option<&'a mut Model<'static>> {
    if state.is_null() || !state.is_aligned() {
        return None;
    }
    // SAFETY: as above.
    unsafe { ((&raw const (*state).ready).read() == READY).then(|| (*state).model.assume_init_mut()) }
}

// SAFETY: no other symbol begins with this model's name.
#[unsafe(no_mangle)]
unsafe extern "C" fn NAME_init(state: *mut State, arena: *mut Arena) -> i32 {
    if state.is_null() || !state.is_aligned() || arena.is_null() || !arena.is_aligned() {
        return ERROR_POINTER;
    }
    // SAFETY: both lead to memory of their sizes that the program leaves to the model, and the arena is written before it
    // is referred to.
    unsafe {
        (&raw mut (*state).ready).write(0);
        arena.write_bytes(0, 1);
        let Ok(model) = Model::new(&mut *arena) else {
            return ERROR_PLAN;
        };
        (&raw mut (*state).model).write(MaybeUninit::new(model));
        (&raw mut (*state).ready).write(READY);
    }
    OK
}
"#;
