//! The generated code in `src/proto` is what `proto/` says. After a change there:
//!
//! ```sh
//! SANDBOX_BENCH_UPDATE_PROTO=1 cargo test -p sandbox-bench-modal --test generated
//! ```
//!
//! makes it anew, without `protoc`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

#[test]
fn the_generated_code_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["modal.proto", "task_command_router.proto"];
    let set = protox::compile(files, [root.join("proto")]).unwrap();
    let made = tempfile::tempdir().unwrap();
    tonic_prost_build::configure().build_server(false).out_dir(made.path()).compile_fds(set).unwrap();
    let kept = root.join("src/proto");
    let update = std::env::var_os("SANDBOX_BENCH_UPDATE_PROTO").is_some();
    for name in ["modal.client.rs", "modal.task_command_router.rs"] {
        let made = fs::read_to_string(made.path().join(name)).unwrap();
        if update {
            fs::write(kept.join(name), &made).unwrap();
        }
        let kept = fs::read_to_string(kept.join(name)).unwrap_or_default();
        assert!(kept == made, "{name} is not what proto/ says: see the head of this file");
    }
}
