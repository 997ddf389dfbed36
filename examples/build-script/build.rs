//! Plans the model, and tells the linker where the board's memory is.

fn main() {
    kiln_build::Model::new("../sine/model/model.kiln").name("sine").board("mps2-an386").compile();

    println!("cargo::rerun-if-changed=memory.x");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "none") {
        // `link.x` comes with the start-up code and takes in `memory.x`.
        println!("cargo::rustc-link-search={}", env!("CARGO_MANIFEST_DIR"));
        println!("cargo::rustc-link-arg-bins=-Tlink.x");
    }
}
