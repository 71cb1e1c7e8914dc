//! An emulated vendor: the program `sandbox-emulator`, as a user starts it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::Bench;
use crate::command::LIMIT;

/// A running emulator. It ends with its input, and so with the test; dropped, it is killed.
#[derive(Debug)]
pub struct Emulator {
    child: Child,
    address: String,
    /// What it says to set to be pointed at it.
    pub variables: Vec<(String, String)>,
}

/// The program: what `SANDBOX_EMULATOR_BIN` names, else the one that cargo put two levels above this test.
fn program() -> PathBuf {
    if let Some(given) = std::env::var_os("SANDBOX_EMULATOR_BIN") {
        return PathBuf::from(given);
    }
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("sandbox-emulator");
    let hint = "build it with `cargo build -p sandbox-bench-emulators`, or name another with SANDBOX_EMULATOR_BIN";
    assert!(built.is_file(), "{} is not there: {hint}", built.display());
    built
}

impl Emulator {
    /// Starts the emulator of this vendor. `last` is the last variable that it says to set.
    ///
    /// # Panics
    /// It does not say its address.
    #[must_use]
    pub fn start(vendor: &str, last: &str) -> Self {
        Self::start_with(vendor, last, &[])
    }

    /// The same with further options of the program.
    ///
    /// # Panics
    /// It does not say its address.
    #[must_use]
    pub fn start_with(vendor: &str, last: &str, options: &[&str]) -> Self {
        Self::start_apart(vendor, last, &[&["--network"], options].concat())
    }

    /// The same with machines that do not share this host's network, and so not its ports.
    ///
    /// # Panics
    /// It does not say its address.
    #[must_use]
    pub fn start_apart(vendor: &str, last: &str, options: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.arg(vendor).args(options).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().expect("an emulator that starts");
        let address = first.strip_prefix("listening on http://").unwrap_or_else(|| panic!("{first}")).to_owned();
        let mut variables = Vec::new();
        for line in lines {
            let (name, value) = line.strip_prefix("export ").and_then(|line| line.split_once('=')).unwrap();
            variables.push((name.to_owned(), value.to_owned()));
            if name == last {
                break;
            }
        }
        Self { child, address, variables }
    }

    /// The command, pointed at this emulator.
    #[must_use]
    pub fn point(&self, bench: Bench) -> Bench {
        self.variables.iter().fold(bench, |bench, (name, value)| bench.env(name, value))
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> &str {
        self.address.rsplit_once(':').unwrap().1
    }

    /// Kills it, as a machine that dies.
    pub fn kill(mut self) {
        let _ = self.child.kill();
    }

    /// What its admin route `/__emulator/{what}` shows: `state`, `violations`, `requests`.
    #[must_use]
    pub fn shows(&self, what: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let request = format!("GET /__emulator/{what} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{head}");
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Its input ends, and so does it, with all that it made.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
