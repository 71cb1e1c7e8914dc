//! Replays a Dockerfile in machines, one for each stage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::parse::{Dockerfile, Instruction, ParseError, Run, Step};
use super::words::expand;
use crate::log::Log;
use crate::machine::{Command, End, Event, Machine, MachineError, MachineSpec, Machines, Saved, Source};

/// Where the build context is in a stage's machine.
const CONTEXT: &str = "/.build-context";
/// Where another stage's files pass through.
const PASSAGE: &str = "/.build-from";
/// Longest time of one step.
const STEP_LIMIT: Duration = Duration::from_secs(3600);

/// A build that failed; its log says more.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The text is no Dockerfile.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// An instruction failed.
    #[error("line {line}: {text}: {why}")]
    Step {
        /// Counted from 1.
        line: usize,
        /// The instruction.
        text: String,
        /// Exit code or reason.
        why: String,
    },
}

/// What a build is given beside its Dockerfile.
#[derive(Default)]
pub struct Build<'a> {
    /// Tar files of its context.
    pub contexts: &'a [Vec<u8>],
    /// What names stand for in `FROM` that are no image references.
    pub bases: BTreeMap<String, Source>,
    /// Values for `ARG`s.
    pub arguments: BTreeMap<String, String>,
    /// Variables of every `RUN` that do not become part of the image.
    pub variables: BTreeMap<String, String>,
}

/// Builds an image from a Dockerfile. The log is closed at the end; machines used are gone then.
///
/// # Errors
/// The first instruction that cannot be parsed, or that fails.
pub async fn build(machines: &Machines, text: &str, given: Build<'_>, log: &Log) -> Result<Arc<Saved>, BuildError> {
    let mut build = Replay { machines, given, log, stages: Vec::new(), global: BTreeMap::new() };
    let result = build.run(text).await;
    if let Err(error) = &result {
        log.line(&format!("ERROR: {error}"));
    }
    for stage in &build.stages {
        // What would not go stays known to `machines`, which removes it at the end.
        let _ = machines.destroy(&stage.machine).await;
    }
    log.close();
    result
}

struct Replay<'a> {
    machines: &'a Machines,
    given: Build<'a>,
    log: &'a Log,
    stages: Vec<Stage>,
    /// `ARG`s before the first `FROM`.
    global: BTreeMap<String, String>,
}

struct Stage {
    name: Option<String>,
    machine: Machine,
    arguments: BTreeMap<String, String>,
    shell: Vec<String>,
    /// `CMD` was said here, not in what the stage stands on.
    own_command: bool,
}

impl Stage {
    fn expand(&self, text: &str) -> String {
        let mut variables = self.arguments.clone();
        variables.extend(self.machine.facts().env);
        expand(text, &variables)
    }

    fn argv(&self, run: &Run) -> Vec<String> {
        match run {
            Run::Shell(script) => self.shell.iter().cloned().chain([script.clone()]).collect(),
            Run::Exec(argv) => argv.clone(),
        }
    }

    fn workdir(&self) -> String {
        self.machine.facts().workdir.unwrap_or_else(|| "/".into())
    }
}

type StepResult<T = ()> = Result<T, String>;

impl Replay<'_> {
    async fn run(&mut self, text: &str) -> Result<Arc<Saved>, BuildError> {
        let steps = Dockerfile::parse(text)?.steps;
        let count = steps.len();
        for (at, step) in steps.iter().enumerate() {
            self.log.line(&format!("Step {}/{count} : {}", at + 1, step.text));
            self.step(&step.instruction).await.map_err(|why| failed(step, why))?;
        }
        let last = steps.last().map(|step| step.line).unwrap_or_default();
        let failed = |why: String| BuildError::Step { line: last, text: "export".into(), why };
        let stage = self.stages.last().ok_or_else(|| failed("no stage".into()))?;
        stage.machine.tool(&format!("rm -rf {CONTEXT}"), &[]).await.map_err(|error| failed(error.to_string()))?;
        let saved = self.machines.save(&stage.machine).await.map_err(|error| failed(error.to_string()))?;
        self.log.line("Successfully built");
        Ok(saved)
    }

    async fn step(&mut self, instruction: &Instruction) -> StepResult {
        match instruction {
            Instruction::From { image, name } => return self.from(&expand(image, &self.global), name).await,
            Instruction::Arg(name, value) if self.stages.is_empty() => {
                let value = self.given.arguments.get(name).or(value.as_ref());
                self.global.insert(name.clone(), value.cloned().unwrap_or_default());
                return Ok(());
            }
            _ => {}
        }
        let Some(stage) = self.stages.last_mut() else { return Err("no build stage".into()) };
        match instruction {
            Instruction::Arg(name, value) => {
                let given = self.given.arguments.get(name).cloned();
                let value = given.or_else(|| value.as_ref().map(|value| stage.expand(value)));
                let value = value.or_else(|| self.global.get(name).cloned());
                stage.arguments.insert(name.clone(), value.unwrap_or_default());
            }
            Instruction::Env(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.clone(), stage.expand(value))).collect();
                stage.machine.change_facts(|facts| facts.env.extend(pairs));
            }
            Instruction::Workdir(path) => {
                let path = absolute(&stage.workdir(), &stage.expand(path));
                tool(&stage.machine, r#"mkdir -p -- "$1""#, &[&path]).await?;
                stage.machine.change_facts(|facts| facts.workdir = Some(path));
            }
            Instruction::User(user) => {
                let user = stage.expand(user);
                stage.machine.change_facts(|facts| facts.user = Some(user));
            }
            Instruction::Shell(shell) => stage.shell.clone_from(shell),
            Instruction::Cmd(run) => {
                let argv = stage.argv(run);
                stage.own_command = true;
                stage.machine.change_facts(|facts| facts.command = argv);
            }
            Instruction::Entrypoint(run) => {
                let (argv, keep) = (stage.argv(run), stage.own_command);
                stage.machine.change_facts(|facts| {
                    facts.entrypoint = argv;
                    // The arguments of another image's entry point are not meant for this one.
                    if !keep {
                        facts.command.clear();
                    }
                });
            }
            Instruction::Run(run) => execute(stage, run, &self.given.variables, self.log).await?,
            Instruction::Copy { .. } => self.copy(instruction).await?,
            Instruction::From { .. } | Instruction::Other(_) => {}
        }
        Ok(())
    }

    async fn from(&mut self, image: &str, name: &Option<String>) -> StepResult {
        let earlier = self.stages.iter().find(|stage| stage.name.as_deref() == Some(image));
        let source = match earlier {
            Some(stage) => Source::Saved(self.machines.save(&stage.machine).await.map_err(|error| error.to_string())?),
            None => self.given.bases.get(image).cloned().unwrap_or_else(|| Source::Image(image.to_owned())),
        };
        let created = self.machines.create(MachineSpec::new(source.clone())).await;
        if let (Source::Saved(saved), Some(_)) = (&source, earlier) {
            self.machines.delete_saved(saved).await.map_err(|error| error.to_string())?;
        }
        let machine = created.map_err(|error| match error {
            MachineError::NoImage(image) => format!("failed to resolve source metadata for {image}: not found"),
            error => error.to_string(),
        })?;
        for context in self.given.contexts {
            machine.write_tar(CONTEXT, None, context.as_slice()).await.map_err(|error| error.to_string())?;
        }
        let shell = vec!["/bin/sh".into(), "-c".into()];
        self.stages.push(Stage { name: name.clone(), machine, arguments: BTreeMap::new(), shell, own_command: false });
        Ok(())
    }

    async fn copy(&self, copy: &Instruction) -> StepResult {
        let (Some(stage), Instruction::Copy { sources, destination, from, owner, mode, inline }) =
            (self.stages.last(), copy)
        else {
            return Ok(());
        };
        let destination = absolute(&stage.workdir(), &stage.expand(destination));
        let (owner, mode) = (owner.as_deref().unwrap_or_default(), mode.as_deref().unwrap_or_default());
        if let Some(text) = inline {
            let script = r#"mkdir -p -- "$(dirname -- "$1")"; cat > "$1"; [ -z "$2" ] || chown -- "$2" "$1"
                [ -z "$3" ] || chmod -- "$3" "$1""#;
            let done = stage.machine.tool_with(script, &[&destination, owner, mode], Some(text.as_bytes())).await;
            return done.map(drop).map_err(|error| error.to_string());
        }
        let root = match from {
            Some(from) => {
                self.bring(stage, from, sources).await?;
                PASSAGE
            }
            None => CONTEXT,
        };
        let sources: Vec<String> = sources.iter().map(|source| stage.expand(source)).collect();
        let arguments = [root, &destination, owner, mode].into_iter().chain(sources.iter().map(String::as_str));
        tool(&stage.machine, COPY, &arguments.collect::<Vec<_>>()).await?;
        tool(&stage.machine, &format!("rm -rf {PASSAGE}"), &[]).await
    }

    /// Brings files of another stage into this one.
    async fn bring(&self, stage: &Stage, from: &str, sources: &[String]) -> StepResult {
        let found = self.stages.iter().find(|stage| stage.name.as_deref() == Some(from));
        let other = found.or_else(|| self.stages.get(from.parse::<usize>().ok()?));
        let other = other.ok_or_else(|| format!("--from={from}: no such stage"))?;
        for source in sources {
            let parent = std::path::Path::new(source).parent().unwrap_or(std::path::Path::new("/"));
            let target = format!("{PASSAGE}/{}", parent.display());
            let (writer, reader) = tokio::io::duplex(1 << 16);
            let (read, written) =
                tokio::join!(other.machine.read_tar(source, writer), stage.machine.write_tar(&target, None, reader));
            read.and(written).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// As Docker copies: a directory's content, not itself; several sources or a trailing slash need a directory.
const COPY: &str = r#"
root=$1 to=$2 owner=$3 mode=$4; shift 4
many=$#
cd "$root" 2>/dev/null || { echo "the build context is empty" >&2; exit 1; }
for source; do
  source=${source#/}; IFS=; found=
  for path in $source; do
    [ -e "./$path" ] || [ -L "./$path" ] || continue
    found=1
    if [ -d "./$path" ]; then
      mkdir -p -- "$to" && cp -a -- "./$path/." "$to" || exit 1
      changed=$to
    else
      case $to in */) directory=1 ;; *) directory= ;; esac
      if [ -n "$directory" ] || [ "$many" -gt 1 ] || [ -d "$to" ]; then
        mkdir -p -- "$to" && cp -a -- "./$path" "$to" || exit 1
        changed=${to%/}/${path##*/}
      else
        mkdir -p -- "$(dirname -- "$to")" && cp -a -- "./$path" "$to" || exit 1
        changed=$to
      fi
    fi
    [ -z "$owner" ] || chown -R -- "$owner" "$changed" || exit 1
    [ -z "$mode" ] || chmod -R -- "$mode" "$changed" || exit 1
  done
  [ -n "$found" ] || { echo "\"/$source\": not found" >&2; exit 1; }
done
"#;

async fn execute(stage: &Stage, run: &Run, variables: &BTreeMap<String, String>, log: &Log) -> StepResult {
    let argv = stage.argv(run);
    let mut command = Command { timeout: Some(STEP_LIMIT), keep_background: false, ..stage.machine.command(argv) };
    command.cwd = Some(stage.workdir());
    for (name, value) in variables.iter().chain(&stage.arguments) {
        command.env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    let mut running = stage.machine.start(command).map_err(|error| error.to_string())?;
    while let Some(event) = running.next().await.map_err(|error| error.to_string())? {
        if let Event::Output(_, bytes) = event {
            log.write(&bytes);
        }
    }
    match running.outcome().await.map_err(|error| error.to_string())?.end {
        End::Exited(0) => Ok(()),
        End::Exited(code) => Err(format!("did not complete successfully: exit code: {code}")),
        End::NotStarted(why) => Err(why.to_string()),
        end => Err(format!("did not complete successfully: {end:?}")),
    }
}

async fn tool(machine: &Machine, script: &str, arguments: &[&str]) -> StepResult {
    machine.tool(script, arguments).await.map(drop).map_err(|error| match error {
        MachineError::Failed { why, .. } => why,
        error => error.to_string(),
    })
}

fn failed(step: &Step, why: String) -> BuildError {
    BuildError::Step { line: step.line, text: step.text.clone(), why }
}

fn absolute(workdir: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", workdir.trim_end_matches('/')) }
}
