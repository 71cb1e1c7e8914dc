//! Tells the program the revision that it is built from, so that evidence can name it.

use std::path::Path;
use std::process::Command;

const REVISION: &str = "SANDBOX_BENCH_REVISION";

fn main() {
    println!("cargo:rerun-if-env-changed={REVISION}");
    println!("cargo:rerun-if-changed=build.rs");
    // Builds for development name none: every commit would build them again.
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if !release || std::env::var_os(REVISION).is_some_and(|said| !said.is_empty()) {
        return;
    }
    // There is no such file, and so cargo asks before every build.
    println!("cargo:rerun-if-changed=no-such-file");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(|root| root.canonicalize().ok());
    // Sources that lie in somebody else's checkout are not of its revision.
    if git(&["rev-parse", "--show-toplevel"]).map(Into::into) != root {
        return;
    }
    if let Some(revision) = git(&["describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=-modified"]) {
        println!("cargo:rustc-env={REVISION}={revision}");
    }
}

/// What git says; none without git, or outside of a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let said = Command::new("git").args(arguments).output().ok().filter(|said| said.status.success())?;
    let text = String::from_utf8(said.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
