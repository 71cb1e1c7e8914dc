//! The loop: ask, do what the model wants, tell it what came of it, until one of the ends.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use sandbox_bench_core::{AgentEnd, AgentRecord, Spend, TokenCounts};
use tokio_util::sync::CancellationToken;

use super::gateway::{Effort, GatewayError};
use super::prices::Purse;
use super::settings::Agent;
use super::stream::{Answer, RawCall};
use super::tools::{self, Tool};
use super::trajectory::Trajectory;
use super::wire::{Message, Request, StreamOptions, WireCall, WireFunction};

/// Answers without anything to do, or with nothing but malformed calls, that are borne in a row.
const PATIENCE: u32 = 3;
/// Equal turns, with equal results, that make a loop.
const LOOP: u32 = 5;

const SYSTEM: &str = "You do a task on a Linux machine, on your own: nobody answers questions. Use the tools to look at \
the machine and to change it. Work step by step, check what you did, and call `finish` when the task is done. What \
counts is the state in which you leave the machine, not what you say.";
const REMINDER: &str =
    "Go on with a tool call. If the task is done, or cannot be done, call `finish`: nobody reads other answers.";

/// What a tool came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Used {
    /// What the model is told.
    pub text: String,
    /// Receipts of the operations.
    pub receipts: Vec<u32>,
}

/// Where tools are used.
pub trait Workbench {
    /// Why the work cannot go on.
    type Stop;

    /// Uses a tool, which must be done by `deadline`. [`Tool::Finish`] never comes here.
    fn use_tool(&mut self, tool: &Tool, deadline: Instant) -> impl Future<Output = Result<Used, Self::Stop>> + Send;
}

/// One conversation in the making.
pub struct Conversation<'a> {
    agent: &'a Agent,
    model: &'a str,
    deadline: Instant,
    cancel: CancellationToken,
    tools: Vec<serde_json::Value>,
    messages: Vec<Message>,
    trajectory: Trajectory,
    progress: Progress,
}

/// What was used up.
#[derive(Default)]
struct Progress {
    turns: u32,
    tool_calls: u32,
    effort: Effort,
    tools: Duration,
    tokens: TokenCounts,
    uncounted: bool,
    purse: Purse,
    answered_by: Option<String>,
    /// Answers in a row without anything to do.
    idle: u32,
    /// Answers in a row with nothing but malformed calls.
    malformed: u32,
    /// Hash of the last turn, and how often it came in a row.
    last: (u64, u32),
}

/// How a conversation ended.
pub struct Ended<S> {
    /// The record.
    pub record: AgentRecord,
    /// The transcript.
    pub trajectory: Trajectory,
    /// What stopped it, if that was not the model and not a limit.
    pub stopped: Option<Stopped<S>>,
}

/// What stopped a conversation from outside.
pub enum Stopped<S> {
    /// The gateway.
    Gateway(GatewayError),
    /// An answer has no known price, and a limit of money must be kept.
    Unpriced(String),
    /// The workbench.
    Bench(S),
}

/// Why the loop ends.
enum Stop<S> {
    End(AgentEnd),
    Outside(AgentEnd, Stopped<S>),
}

impl<S> From<AgentEnd> for Stop<S> {
    fn from(end: AgentEnd) -> Self {
        Self::End(end)
    }
}

impl<'a> Conversation<'a> {
    /// A conversation about `instruction` with `model`, to be over by `deadline`. `run` and `tag` name the attempt.
    #[must_use]
    pub fn new(
        agent: &'a Agent,
        model: &'a str,
        (instruction, workdir): (&str, &str),
        (deadline, cancel): (Instant, CancellationToken),
        (run, tag): (&str, &str),
    ) -> Self {
        let task = format!("{}\n\nThe working directory is {workdir}.", instruction.trim_end());
        let mut trajectory = Trajectory::new(run, tag, model);
        trajectory.say("system", SYSTEM);
        trajectory.say("user", &task);
        Self {
            agent,
            model,
            deadline,
            cancel,
            tools: tools::definitions(),
            messages: vec![Message::System { content: SYSTEM.into() }, Message::User { content: task }],
            trajectory,
            progress: Progress::default(),
        }
    }

    /// Talks until the end.
    pub async fn run<W: Workbench>(mut self, bench: &mut W) -> Ended<W::Stop> {
        let stop = loop {
            if let Err(stop) = self.turn(bench).await {
                break stop;
            }
        };
        let (end, stopped) = match stop {
            Stop::End(end) => (end, None),
            Stop::Outside(end, stopped) => (end, Some(stopped)),
        };
        let record = self.record(end);
        let message = match &stopped {
            Some(Stopped::Gateway(error)) => Some(error.to_string()),
            Some(Stopped::Unpriced(why)) => Some(why.clone()),
            _ => None,
        };
        self.trajectory.end(&record, message.as_deref());
        Ended { record, trajectory: self.trajectory, stopped }
    }

    async fn turn<W: Workbench>(&mut self, bench: &mut W) -> Result<(), Stop<W::Stop>> {
        self.within_limits()?;
        let answer = self.ask().await?;
        if !answer.refusal.is_empty() || answer.finish.as_deref() == Some("content_filter") {
            return Err(AgentEnd::Refused.into());
        }
        if answer.calls.is_empty() {
            return self.remind(&answer).map_err(Stop::from);
        }
        self.progress.idle = 0;
        self.messages.push(assistant(&answer));
        self.act(&answer.calls, bench).await
    }

    fn within_limits(&self) -> Result<(), AgentEnd> {
        let limits = &self.agent.limits;
        let usd = self.progress.purse.spend(self.agent.prices.as_ref()).usd();
        match () {
            () if Instant::now() >= self.deadline => Err(AgentEnd::TimeLimit),
            () if self.progress.turns >= limits.turns => Err(AgentEnd::TurnLimit),
            () if self.progress.tokens.total() >= limits.tokens => Err(AgentEnd::TokenLimit),
            () if limits.usd.zip(usd).is_some_and(|(limit, usd)| usd >= limit) => Err(AgentEnd::CostLimit),
            () => Ok(()),
        }
    }

    async fn ask<S>(&mut self) -> Result<Answer, Stop<S>> {
        let request = Request {
            model: self.model,
            messages: &self.messages,
            tools: &self.tools,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
        };
        let progress = &mut self.progress;
        let before = progress.effort.asking;
        let asked = self.agent.gateway.ask(&request, self.deadline, &self.cancel, &mut progress.effort).await;
        let mut answer = asked.map_err(|error| match error {
            GatewayError::ContextOverflow(_) => Stop::End(AgentEnd::ContextOverflow),
            GatewayError::TimeUp => Stop::End(AgentEnd::TimeLimit),
            GatewayError::Cancelled => Stop::Outside(AgentEnd::Interrupted, Stopped::Gateway(error)),
            error => Stop::Outside(AgentEnd::Gateway, Stopped::Gateway(error)),
        })?;
        progress.turns += 1;
        name_apart(&mut answer.calls, progress.turns);
        let prices = self.agent.prices.as_ref();
        match &answer.tokens {
            Some(tokens) => progress.tokens = progress.tokens.plus(tokens),
            None => progress.uncounted = true,
        }
        progress.purse.pay(self.model, answer.usd, answer.tokens.as_ref(), prices);
        progress.answered_by = answer.model.clone().or(progress.answered_by.take());
        self.trajectory.answer(&answer, micros(progress.effort.asking - before));
        if self.agent.limits.price_needed
            && let Spend::Unknown { why } = progress.purse.spend(prices)
        {
            return Err(Stop::Outside(AgentEnd::Gateway, Stopped::Unpriced(why)));
        }
        Ok(answer)
    }

    /// The answer holds nothing to do. The model is reminded, a few times.
    fn remind(&mut self, answer: &Answer) -> Result<(), AgentEnd> {
        self.progress.idle += 1;
        let empty = answer.content.trim().is_empty();
        if self.progress.idle >= PATIENCE {
            return Err(if empty { AgentEnd::Empty } else { AgentEnd::NoAction });
        }
        // An empty message in the history is refused by some providers.
        if !empty {
            self.messages.push(assistant(answer));
        }
        self.messages.push(Message::User { content: REMINDER.into() });
        self.trajectory.say("user", REMINDER);
        Ok(())
    }

    async fn act<W: Workbench>(&mut self, calls: &[RawCall], bench: &mut W) -> Result<(), Stop<W::Stop>> {
        let mut turn = DefaultHasher::new();
        let mut understood = false;
        for call in calls {
            self.progress.tool_calls += 1;
            let used = match Tool::parse(call) {
                Err(why) => Used { text: format!("malformed tool call: {why}"), ..Used::default() },
                Ok(Tool::Finish) => {
                    self.trajectory.result(call, "finished", &[]);
                    return Err(AgentEnd::Finished.into());
                }
                Ok(tool) => {
                    understood = true;
                    let start = Instant::now();
                    let used = bench.use_tool(&tool, self.deadline).await;
                    self.progress.tools += start.elapsed();
                    let end = if self.cancel.is_cancelled() { AgentEnd::Interrupted } else { AgentEnd::Sandbox };
                    used.map_err(|stop| Stop::Outside(end, Stopped::Bench(stop)))?
                }
            };
            (&call.name, &call.arguments, &used.text).hash(&mut turn);
            self.trajectory.result(call, &used.text, &used.receipts);
            self.messages.push(Message::Tool { tool_call_id: call.id.clone(), content: used.text });
        }
        self.progress.malformed = if understood { 0 } else { self.progress.malformed + 1 };
        if self.progress.malformed >= PATIENCE {
            return Err(AgentEnd::Malformed.into());
        }
        let turn = turn.finish();
        let (last, times) = self.progress.last;
        self.progress.last = (turn, if turn == last { times + 1 } else { 1 });
        if self.progress.last.1 >= LOOP {
            return Err(AgentEnd::Looping.into());
        }
        Ok(())
    }

    fn record(&self, end: AgentEnd) -> AgentRecord {
        let progress = &self.progress;
        AgentRecord {
            model: self.model.to_owned(),
            answered_by: progress.answered_by.clone(),
            gateway: self.agent.gateway.shown().to_owned(),
            end,
            turns: progress.turns,
            tool_calls: progress.tool_calls,
            requests: progress.effort.requests,
            repeated_requests: progress.effort.repeated,
            tokens: (!progress.uncounted && progress.turns > 0).then_some(progress.tokens),
            spend: match progress.turns {
                0 => Spend::Unknown { why: "no answer came".into() },
                _ => progress.purse.spend(self.agent.prices.as_ref()),
            },
            model_us: micros(progress.effort.asking),
            waiting_us: micros(progress.effort.waiting),
            tool_us: micros(progress.tools),
        }
    }
}

/// Gives each call of an answer an id of its own, where the server did not.
fn name_apart(calls: &mut [RawCall], turn: u32) {
    let mut seen = HashSet::new();
    for (number, call) in calls.iter_mut().enumerate() {
        if call.id.is_empty() || seen.contains(&call.id) {
            call.id = format!("call_{turn}_{number}");
        }
        seen.insert(call.id.clone());
    }
}

/// An answer as part of the history, where a name that no tool can have, or arguments that are no JSON object, would be
/// refused.
fn assistant(answer: &Answer) -> Message {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let call = |call: &RawCall| WireCall {
        id: call.id.clone(),
        r#type: "function",
        function: WireFunction {
            name: if call.name.is_empty() { "unnamed".into() } else { call.name.chars().take(64).map(plain).collect() },
            arguments: tools::arguments(call)
                .map_or_else(|_| "{}".into(), |object| serde_json::Value::Object(object).to_string()),
        },
    };
    Message::Assistant {
        content: Some(answer.content.clone()).filter(|content| !content.is_empty()),
        tool_calls: answer.calls.iter().map(call).collect(),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
