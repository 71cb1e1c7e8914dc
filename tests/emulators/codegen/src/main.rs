//! Writes the Rust code of `tests/emulators/proto` into the emulators, where it is checked in: building them needs no
//! generator and no `protoc`. After a change: `cargo run -p sandbox-bench-emulators-codegen`. Its test fails as long as
//! that is due. A crate of its own, so that it also runs while the emulators do not compile.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use prost::Message;

const FILES: [&str; 2] = ["api.proto", "task_command_router.proto"];

fn main() -> anyhow::Result<()> {
    fs::create_dir_all(target())?;
    for (name, content) in generate()? {
        fs::write(target().join(name), content)?;
    }
    Ok(())
}

fn emulators() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Where the code is checked in.
fn target() -> PathBuf {
    emulators().join("src/modal/generated")
}

/// Generated files by name: the code of each package, and the descriptors of all.
fn generate() -> anyhow::Result<BTreeMap<&'static str, Vec<u8>>> {
    let descriptors = protox::Compiler::new([emulators().join("proto/modal")])?
        .include_imports(true)
        .open_files(FILES)?
        .file_descriptor_set();
    let directory = tempfile::tempdir()?;
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::modal::codec::Strict")
        .emit_rerun_if_changed(false)
        .out_dir(directory.path())
        .compile_fds_with_config(descriptors.clone(), config)?;
    let mut files = BTreeMap::from([("descriptors.bin", descriptors.encode_to_vec())]);
    for name in ["modal.client.rs", "modal.task_command_router.rs"] {
        files.insert(name, fs::read(directory.path().join(name))?);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checked_in_code_is_what_the_proto_files_say() {
        for (name, content) in generate().expect("the .proto files are right") {
            let found = fs::read(target().join(name)).unwrap_or_default();
            assert!(found == content, "{name} is out of date: cargo run -p sandbox-bench-emulators-codegen");
        }
    }
}
