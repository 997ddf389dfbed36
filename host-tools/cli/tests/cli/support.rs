//! Running the command and finding the reference data.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The models that Kiln runs so far.
pub(crate) const MODELS: [&str; 3] = ["tflm-hello-world-int8", "mlperf-kws-dscnn-int8", "mlperf-ic-resnet8-int8"];

/// What a run of the command did.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `kiln`, plain as into a pipe.
pub(crate) fn kiln<I, S>(args: I) -> Ran
where
    I: IntoIterator<Item = S>,
    S: AsRef<std::ffi::OsStr>,
{
    let output: Output = Command::new(env!("CARGO_BIN_EXE_kiln")).args(args).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!stderr.contains("panicked"), "{stderr}");
    let code = output.status.code().expect("ended by a signal");
    Ran { code, stdout: String::from_utf8(output.stdout).unwrap(), stderr }
}

/// Runs `kiln` and demands exit code 0.
pub(crate) fn kiln_fine<I, S>(args: I) -> String
where
    I: IntoIterator<Item = S>,
    S: AsRef<std::ffi::OsStr>,
{
    let ran = kiln(args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout
}

/// A model's folder in the reference data; `None`, with a line saying so, where the data is missing.
pub(crate) fn model_folder(name: &str) -> Option<PathBuf> {
    let data = match std::env::var_os("KILN_DATA") {
        Some(data) => PathBuf::from(data),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    if !data.join("models").is_dir() {
        println!("skipped: no reference data in {} (set KILN_DATA)", data.display());
        return None;
    }
    let folder = data.join("models").join(name);
    assert!(folder.is_dir(), "{} is missing", folder.display());
    Some(folder)
}

/// A path as an argument.
pub(crate) fn arg(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
