//! An emulated account, and the runner that its MicroVMs get: this host's build of it, as MicroVMs run on this host.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use sandbox_bench_emulators::aws_microvm::{self, AwsOptions};
use sandbox_bench_emulators::machine::{ImageTable, MachineOptions};
use sandbox_bench_emulators::{Emulation, Listener, Machines, Server, Timing};

/// The bucket of build contexts.
const BUCKET: &str = "sandbox-bench-contexts";
/// A network connector that leads nowhere.
const CONNECTOR: &str = "offline";
/// Names the runner, where it was built already.
const RUNNER: &str = "SANDBOX_BENCH_MICROVM_RUNNER";

/// Variables of the environment.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// The value of a variable.
pub(crate) fn read(variables: &Variables, name: &str) -> Option<String> {
    variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
}

/// Starts an emulator; returns it with what a user sets to be pointed at it.
pub(crate) async fn serve(options: AwsOptions) -> anyhow::Result<(Server, Variables)> {
    let runner = runner()?;
    let images = ImageTable::new(Default::default(), &["sandbox-bench-conformance.invalid/*".to_owned()])?;
    let machines = Machines::open(MachineOptions { images, ..MachineOptions::default() }).await?;
    let emulation = Arc::new(Emulation::new(machines, Timing::default()));
    let options = AwsOptions { buckets: vec![BUCKET.to_owned()], connectors: [CONNECTOR.to_owned()].into(), ..options };
    let account = options.clone();
    let server = aws_microvm::start(Listener::bind(0).await?, emulation, options);
    let url = server.base_url().to_owned();
    let variables = vec![
        ("AWS_ENDPOINT_URL_LAMBDA_MICROVMS", url.clone()),
        ("AWS_ENDPOINT_URL_S3", url.clone()),
        ("AWS_MICROVM_DATA_PLANE_URL", url),
        ("AWS_MICROVM_NO_NETWORK_CONNECTOR", account.connector_arn(CONNECTOR)),
        ("AWS_REGION", account.region),
        ("AWS_ACCESS_KEY_ID", account.access_key),
        ("AWS_SECRET_ACCESS_KEY", account.secret_key),
        ("AWS_MICROVM_ARTIFACT_BUCKET", BUCKET.to_owned()),
        ("AWS_MICROVM_BUILD_ROLE_ARN", format!("arn:aws:iam::{}:role/build", account.account)),
        ("AWS_MICROVM_RUNNER", runner.display().to_string()),
        ("AWS_MICROVM_ARCH", std::env::consts::ARCH.to_owned()),
    ];
    Ok((server, variables))
}

/// The runner: what the variable names, else the one that cargo put two levels above this test.
fn runner() -> anyhow::Result<PathBuf> {
    if let Some(given) = std::env::var_os(RUNNER) {
        return Ok(given.into());
    }
    let test = std::env::current_exe()?;
    let built =
        test.ancestors().nth(2).context("the test lies in no target directory")?.join("sandbox-bench-microvm-runner");
    ensure!(
        built.is_file(),
        "{} is not there: build it with `cargo build -p sandbox-bench-microvm-runner`, or name another with {RUNNER}",
        built.display()
    );
    Ok(built)
}
