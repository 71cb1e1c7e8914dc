//! `sandbox-emulator VENDOR`: one vendor's wire protocol on a local port.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use sandbox_bench_emulators::aws_microvm::{self, AwsOptions, Quotas};
use sandbox_bench_emulators::cli::{self, Options};
use sandbox_bench_emulators::daytona::{self, DaytonaOptions, Permission, Quota};
use sandbox_bench_emulators::modal::{self, ModalOptions};
use sandbox_bench_emulators::polyaxon::{self, PolyaxonOptions};
use sandbox_bench_emulators::vercel::{self, ImageState, Limits, VercelOptions};

#[derive(Parser)]
#[command(version, about = "Emulates a sandbox vendor's wire protocol; sandboxes really execute")]
struct Arguments {
    #[command(subcommand)]
    vendor: Vendor,
}

#[derive(Subcommand)]
enum Vendor {
    /// AWS Lambda MicroVMs, API version 2025-09-09, with the part of S3 that it needs
    AwsMicrovm(AwsMicrovm),
    /// Daytona, platform generation v0
    Daytona(Daytona),
    /// Modal Sandboxes (V2): control plane and task command router
    Modal(Modal),
    /// Polyaxon: the sandbox gateway, over an API in memory or a real server
    Polyaxon(Polyaxon),
    /// Vercel Sandbox, API v3 and v2
    Vercel(Vercel),
}

#[derive(Args)]
struct AwsMicrovm {
    #[command(flatten)]
    options: Options,
    /// The region of endpoint, images and buckets
    #[arg(long, default_value = "us-east-1")]
    region: String,
    /// GiB of baseline memory that all MicroVMs may have together
    #[arg(long, value_name = "GIB", default_value_t = Quotas::default().memory_mib >> 10)]
    memory: u64,
    /// RunMicrovm calls per second
    #[arg(long, value_name = "CALLS", default_value_t = Quotas::default().rates.run)]
    run_rate: u32,
    /// A network connector of the account; it leads nowhere
    #[arg(long, value_name = "NAME", default_value = "offline")]
    connector: String,
    /// The bucket that exists from the start
    #[arg(long, value_name = "NAME", default_value = "artifacts")]
    bucket: String,
    /// Milliseconds that a second of the API's intervals takes
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    second: u64,
    /// Milliseconds for which the endpoint of a MicroVM that runs still answers 502
    #[arg(long, value_name = "MS", default_value_t = 100)]
    endpoint_lag: u64,
}

#[derive(Args)]
struct Daytona {
    #[command(flatten)]
    options: Options,
    /// The API key that is accepted
    #[arg(long, default_value = "dtn_emulator")]
    api_key: String,
    /// The key may not delete sandboxes
    #[arg(long)]
    no_delete: bool,
    /// vCPU, GiB of memory and GiB of disk that all sandboxes may have together
    #[arg(long, num_args = 3, value_names = ["VCPU", "MEMORY", "DISK"])]
    quota: Option<Vec<u64>>,
    /// Snapshots that the organization may have
    #[arg(long, default_value_t = 30)]
    snapshot_quota: u64,
    /// Milliseconds that a minute of the API's intervals takes
    #[arg(long, value_name = "MS", default_value_t = 60_000)]
    minute: u64,
}

#[derive(Args)]
struct Modal {
    #[command(flatten)]
    options: Options,
    /// Id of the token that is accepted
    #[arg(long, default_value = "ak-emulator")]
    token_id: String,
    /// Secret of the token that is accepted
    #[arg(long, default_value = "as-emulator")]
    token_secret: String,
    /// Sandboxes at one time
    #[arg(long, value_name = "COUNT", default_value_t = ModalOptions::default().concurrent_sandboxes)]
    concurrent: usize,
    /// Seconds that a token for the task command router is valid
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    router_token_life: u64,
}

#[derive(Args)]
struct Polyaxon {
    #[command(flatten)]
    options: Options,
    /// The token that is accepted
    #[arg(long, default_value = "emulator-token")]
    token: String,
    /// A project that exists from the start
    #[arg(long, default_value = "bench")]
    project: String,
    /// Forward /api and /streams to a real server at this address
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
}

#[derive(Args)]
struct Vercel {
    #[command(flatten)]
    options: Options,
    /// The access token that is accepted
    #[arg(long, default_value = "emulator-token")]
    token: String,
    /// An image that was pushed to the project's registry
    #[arg(long, value_name = "REPOSITORY:TAG")]
    pushed: Vec<String>,
    /// An image that was pushed and is still being prepared
    #[arg(long, value_name = "REPOSITORY:TAG")]
    preparing: Vec<String>,
    /// Sandboxes at one time
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().concurrent_sessions)]
    concurrent: usize,
    /// Processors handed out per minute
    #[arg(long, value_name = "VCPU", default_value_t = Limits::default().vcpus_per_minute)]
    vcpu_rate: u32,
}

fn main() -> ExitCode {
    // Before anything else: a helper of the engine must have one thread.
    sandbox_bench_local::engine::helper_main_if_requested();
    let result = tokio::runtime::Runtime::new().map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(run(Arguments::parse()));
        // A read of standard input may still wait; nothing depends on it.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox-emulator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.vendor {
        Vendor::AwsMicrovm(aws) => serve_aws_microvm(aws).await,
        Vendor::Daytona(daytona) => serve_daytona(daytona).await,
        Vendor::Modal(modal) => serve_modal(modal).await,
        Vendor::Polyaxon(polyaxon) => serve_polyaxon(polyaxon).await,
        Vendor::Vercel(vercel) => serve_vercel(vercel).await,
    }
}

async fn serve_aws_microvm(arguments: AwsMicrovm) -> anyhow::Result<()> {
    let defaults = AwsOptions::default();
    let mut quotas = defaults.quotas;
    quotas.memory_mib = arguments.memory << 10;
    quotas.rates.run = arguments.run_rate;
    let settings = AwsOptions {
        region: arguments.region,
        quotas,
        connectors: [arguments.connector.clone()].into(),
        buckets: vec![arguments.bucket.clone()],
        second: Duration::from_millis(arguments.second),
        endpoint_lag: Duration::from_millis(arguments.endpoint_lag),
        ..defaults
    };
    let emulation = arguments.options.emulation().await?;
    let listener = arguments.options.listener().await?;
    let server = aws_microvm::start(listener, emulation, settings.clone());
    let url = server.base_url().to_owned();
    let variables = [
        ("AWS_ENDPOINT_URL_LAMBDA_MICROVMS", url.clone()),
        ("AWS_ENDPOINT_URL_S3", url.clone()),
        ("AWS_MICROVM_DATA_PLANE_URL", url),
        ("AWS_REGION", settings.region.clone()),
        ("AWS_DEFAULT_REGION", settings.region.clone()),
        ("AWS_ACCESS_KEY_ID", settings.access_key.clone()),
        ("AWS_SECRET_ACCESS_KEY", settings.secret_key.clone()),
        ("AWS_MICROVM_ARTIFACT_BUCKET", arguments.bucket),
        ("AWS_MICROVM_BUILD_ROLE_ARN", format!("arn:aws:iam::{}:role/build", settings.account)),
        ("AWS_MICROVM_NO_NETWORK_CONNECTOR", settings.connector_arn(&arguments.connector)),
        // MicroVMs execute what this host executes.
        ("AWS_MICROVM_ARCH", if cfg!(target_arch = "aarch64") { "arm64" } else { std::env::consts::ARCH }.to_owned()),
    ];
    cli::serve(server, &variables).await
}

async fn serve_daytona(arguments: Daytona) -> anyhow::Result<()> {
    let mut options = DaytonaOptions {
        api_key: arguments.api_key.clone(),
        minute: Duration::from_millis(arguments.minute),
        quota: Quota { snapshots: arguments.snapshot_quota, ..Quota::default() },
        ..DaytonaOptions::default()
    };
    if let Some([cpu, memory, disk]) = arguments.quota.as_deref() {
        (options.quota.cpu, options.quota.memory, options.quota.disk) = (*cpu, *memory, *disk);
    }
    if arguments.no_delete {
        options.permissions.remove(&Permission::DeleteSandboxes);
    }
    let emulation = arguments.options.emulation().await?;
    let listener = arguments.options.listener().await?;
    let server = daytona::start(listener, emulation, options);
    let variables = [("DAYTONA_API_URL", format!("{}/api", server.base_url())), ("DAYTONA_API_KEY", arguments.api_key)];
    cli::serve(server, &variables).await
}

async fn serve_modal(arguments: Modal) -> anyhow::Result<()> {
    let settings = ModalOptions {
        token_id: arguments.token_id.clone(),
        token_secret: arguments.token_secret.clone(),
        concurrent_sandboxes: arguments.concurrent,
        router_token_life: Duration::from_secs(arguments.router_token_life),
        ..ModalOptions::default()
    };
    let (listener, emulation) = (arguments.options.listener().await?, arguments.options.emulation().await?);
    let server = modal::start(listener, emulation, settings);
    let variables = [
        ("MODAL_SERVER_URL", server.base_url().to_owned()),
        ("MODAL_TOKEN_ID", arguments.token_id),
        ("MODAL_TOKEN_SECRET", arguments.token_secret),
        // No profile of the user may interfere.
        ("MODAL_CONFIG_PATH", "/dev/null".to_owned()),
    ];
    cli::serve(server, &variables).await
}

async fn serve_polyaxon(arguments: Polyaxon) -> anyhow::Result<()> {
    let Polyaxon { options, token, project, upstream } = arguments;
    let (listener, emulation) = (options.listener().await?, options.emulation().await?);
    let settings = PolyaxonOptions { token: token.clone(), project: project.clone(), upstream };
    let server = polyaxon::start(listener, emulation, settings);
    let variables = [
        ("POLYAXON_HOST", server.base_url().to_owned()),
        ("POLYAXON_AUTH_TOKEN", token),
        ("POLYAXON_EMULATOR_PROJECT", format!("default/{project}")),
    ];
    cli::serve(server, &variables).await
}

async fn serve_vercel(arguments: Vercel) -> anyhow::Result<()> {
    let ready = arguments.pushed.into_iter().map(|name| (name, ImageState::Ready));
    let preparing = arguments.preparing.into_iter().map(|name| (name, ImageState::Preparing));
    let options = VercelOptions {
        tokens: vec![arguments.token.clone()],
        images: ready.chain(preparing).collect(),
        limits: Limits {
            concurrent_sessions: arguments.concurrent,
            vcpus_per_minute: arguments.vcpu_rate,
            ..Limits::default()
        },
        ..VercelOptions::default()
    };
    let emulation = arguments.options.emulation().await?;
    let listener = arguments.options.listener().await?;
    let (team, project) = (options.team_id.clone(), options.project_id.clone());
    let server = vercel::start(listener, emulation, options);
    let variables = [
        ("VERCEL_API_URL", format!("{}/api", server.base_url())),
        ("VERCEL_TOKEN", arguments.token),
        ("VERCEL_TEAM_ID", team),
        ("VERCEL_PROJECT_ID", project),
    ];
    cli::serve(server, &variables).await
}
