//! The files in `model/` are what the program writes, byte for byte.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

#[test]
fn training_again_gives_the_same_files() -> io::Result<()> {
    let directory = tempfile::tempdir()?;
    let ran = Command::new(env!("CARGO_BIN_EXE_sine")).arg(directory.path()).output()?;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("model");
    let names = |directory: &Path| -> io::Result<Vec<_>> {
        let mut names = fs::read_dir(directory)?.map(|e| Ok(e?.file_name())).collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    };
    let written = names(directory.path())?;
    assert_eq!(written.len(), 4);
    assert_eq!(written, names(&kept)?);
    for name in written {
        let same = fs::read(directory.path().join(&name))? == fs::read(kept.join(&name))?;
        assert!(same, "{name:?} in model/ is not what this program writes; `cargo run -p sine` writes it anew");
    }
    Ok(())
}
