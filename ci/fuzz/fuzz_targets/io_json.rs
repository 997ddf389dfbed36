//! Any bytes as `io.json`: an error or a description whose references can be followed.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = kiln_codegen::io_json::parse(bytes);
});
