//! The engine's end of the pipes to one sandbox: many channels over one conversation.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::job::Request;
use super::launch::{Process, read_frame};
use super::wire::{CHUNK, Frame, Kind, WINDOW};

/// A running sandbox's conversation. Dropping it ends the sandbox.
pub(crate) struct Connection {
    out: mpsc::UnboundedSender<Frame>,
    routes: Arc<Routes>,
    next: AtomicU32,
    child: tokio::sync::Mutex<Child>,
    /// Aborted on drop. The writer owns standard input, whose closing tells the agent to end.
    tasks: Mutex<JoinSet<()>>,
}

/// Where frames of a channel go. Queues are unbounded in type and bounded by the windows in fact.
#[derive(Default)]
struct Routes {
    open: Mutex<Option<HashMap<u32, Route>>>,
}

struct Route {
    frames: mpsc::UnboundedSender<Frame>,
    window: Arc<Semaphore>,
}

impl Connection {
    pub(crate) fn new(process: Process) -> Connection {
        let (out, queue) = mpsc::unbounded_channel();
        let routes = Arc::new(Routes { open: Mutex::new(Some(HashMap::new())) });
        let mut tasks = JoinSet::new();
        tasks.spawn(write(queue, process.stdin));
        tasks.spawn(read(process.stdout, Arc::clone(&routes)));
        Connection {
            out,
            routes,
            next: AtomicU32::new(1),
            child: tokio::sync::Mutex::new(process.child),
            tasks: Mutex::new(tasks),
        }
    }

    /// Starts a job on a new channel. `None` if the sandbox has ended.
    pub(crate) fn open(&self, request: &Request) -> io::Result<Option<Channel>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (frames, received) = mpsc::unbounded_channel();
        let window = Arc::new(Semaphore::new(WINDOW));
        let start = Frame::json(id, Kind::Start, request)?;
        start.encoded()?;
        if !self.routes.insert(id, Route { frames, window: Arc::clone(&window) }) || self.out.send(start).is_err() {
            return Ok(None);
        }
        Ok(Some(Channel { id, received, window, out: self.out.clone(), routes: Arc::clone(&self.routes), over: false }))
    }

    pub(crate) fn ended(&self) -> bool {
        self.routes.lock().is_none()
    }

    /// Ends the sandbox and waits until its last process is gone; true if that was seen.
    ///
    /// Hanging up lets the agent exit, and with it, by the kernel's hand, everything in its pid namespace: the helper's
    /// own exit is then the proof. After `limit` the process group is killed.
    pub(crate) async fn close(&self, limit: Duration) -> bool {
        lock(&self.tasks).abort_all();
        self.routes.close();
        let mut child = self.child.lock().await;
        let group = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        if tokio::time::timeout(limit, child.wait()).await.is_ok() {
            return true;
        }
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        tokio::time::timeout(limit, child.wait()).await.is_ok()
    }
}

impl Routes {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u32, Route>>> {
        lock(&self.open)
    }

    fn insert(&self, id: u32, route: Route) -> bool {
        match self.lock().as_mut() {
            Some(open) => {
                open.insert(id, route);
                true
            }
            None => false,
        }
    }

    fn deliver(&self, frame: Frame) -> io::Result<()> {
        let mut open = self.lock();
        let Some(open) = open.as_mut() else {
            return Ok(());
        };
        let id = frame.channel;
        let Some(route) = open.get(&id) else {
            // The caller has lost interest.
            return Ok(());
        };
        if frame.kind == Kind::Credit {
            let room = WINDOW.saturating_sub(route.window.available_permits());
            route.window.add_permits((frame.number()? as usize).min(room));
            return Ok(());
        }
        let over = frame.kind == Kind::Done;
        let _ = route.frames.send(frame);
        if over {
            // Whoever waits to send input to the job waits in vain.
            route.window.close();
            open.remove(&id);
        }
        Ok(())
    }

    fn forget(&self, id: u32) {
        if let Some(route) = self.lock().as_mut().and_then(|open| open.remove(&id)) {
            route.window.close();
        }
    }

    fn close(&self) {
        if let Some(open) = self.lock().take() {
            open.values().for_each(|route| route.window.close());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn write(mut queue: mpsc::UnboundedReceiver<Frame>, mut stdin: ChildStdin) {
    while let Some(frame) = queue.recv().await {
        // Frames were checked when they were made; a failing write means that the reader sees the end as well.
        let Ok(bytes) = frame.encoded() else { continue };
        if stdin.write_all(&bytes).await.is_err() {
            break;
        }
    }
}

async fn read(mut stdout: ChildStdout, routes: Arc<Routes>) {
    while let Ok(frame) = read_frame(&mut stdout).await {
        if routes.deliver(frame).is_err() {
            break;
        }
    }
    routes.close();
}

/// One job's conversation. Dropping it before the job is over kills the job.
pub(crate) struct Channel {
    id: u32,
    received: mpsc::UnboundedReceiver<Frame>,
    window: Arc<Semaphore>,
    out: mpsc::UnboundedSender<Frame>,
    routes: Arc<Routes>,
    over: bool,
}

/// The input side of a channel.
#[derive(Clone)]
pub(crate) struct Input {
    id: u32,
    window: Arc<Semaphore>,
    out: mpsc::UnboundedSender<Frame>,
}

impl Channel {
    /// The next frame from the job; `None` if the sandbox ended first. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let frame = self.received.recv().await?;
        self.over |= frame.kind == Kind::Done;
        Some(frame)
    }

    /// Tells the job that this many bytes were consumed.
    pub(crate) fn credit(&self, bytes: usize) {
        let _ = self.out.send(Frame::new(self.id, Kind::Credit, (bytes as u32).to_le_bytes()));
    }

    pub(crate) fn kill(&self) {
        let _ = self.out.send(Frame::new(self.id, Kind::Kill, []));
    }

    pub(crate) fn input(&self) -> Input {
        Input { id: self.id, window: Arc::clone(&self.window), out: self.out.clone() }
    }
}

impl Input {
    /// Sends bytes as the job takes them. False if job or sandbox has ended.
    pub(crate) async fn send(&self, bytes: &[u8]) -> bool {
        for chunk in bytes.chunks(CHUNK) {
            match self.window.acquire_many(chunk.len() as u32).await {
                Ok(permit) => permit.forget(),
                Err(_) => return false,
            }
            if self.out.send(Frame::new(self.id, Kind::Input, chunk)).is_err() {
                return false;
            }
        }
        true
    }

    pub(crate) fn end(&self) {
        let _ = self.out.send(Frame::new(self.id, Kind::InputEnd, []));
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.routes.forget(self.id);
        if !self.over {
            self.kill();
        }
    }
}
