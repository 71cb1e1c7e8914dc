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

/// Its MicroVMs have a network of their own, or they could not listen on one port.
const APART: &str = "aws-microvm";

/// A program of a package: what the variable names, else the one that cargo put two levels above this test.
fn program((name, package, variable): (&str, &str, &str)) -> PathBuf {
    if let Some(given) = std::env::var_os(variable) {
        return PathBuf::from(given);
    }
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join(name);
    let hint = format!("build it with `cargo build -p {package}`, or name another with {variable}");
    assert!(built.is_file(), "{} is not there: {hint}", built.display());
    built
}

fn emulator() -> PathBuf {
    program(("sandbox-emulator", "sandbox-bench-emulators", "SANDBOX_EMULATOR_BIN"))
}

/// What runs in emulated MicroVMs, which run on this host.
fn runner() -> PathBuf {
    program(("sandbox-bench-microvm-runner", "sandbox-bench-microvm-runner", "SANDBOX_BENCH_MICROVM_RUNNER"))
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
        let mut command = Command::new(emulator());
        command.arg(vendor).args(options).stdin(Stdio::piped()).stdout(Stdio::piped());
        if vendor != APART {
            command.arg("--network");
        }
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
        if vendor == APART {
            variables.push(("AWS_MICROVM_RUNNER".to_owned(), runner().display().to_string()));
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

    /// Its address, as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What its admin route `/__emulator/{what}` shows: `state`, `violations`, `requests`.
    #[must_use]
    pub fn shows(&self, what: &str) -> Value {
        self.get(&format!("/__emulator/{what}"))
    }

    /// What the vendor answers to a GET, as JSON.
    #[must_use]
    pub fn get(&self, path: &str) -> Value {
        serde_json::from_slice(&self.bytes(path)).unwrap()
    }

    /// What the vendor answers to a GET.
    #[must_use]
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        self.ask("GET", path, "")
    }

    /// What the vendor answers to a POST of `body`, as JSON.
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Value {
        serde_json::from_slice(&self.ask("POST", path, &body.to_string())).unwrap()
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let token = self.variables.iter().find(|(name, _)| name.ends_with("TOKEN")).map_or("", |(_, token)| token);
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Token {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let (head, body) = (String::from_utf8_lossy(&answer[..end]).to_lowercase(), &answer[end + 4..]);
        assert!(head.lines().next().unwrap().contains(" 20"), "{method} {path}: {head}");
        if !head.contains("content-encoding: gzip") {
            return body.to_vec();
        }
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(body).read_to_end(&mut unpacked).unwrap();
        unpacked
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Its input ends, and so does it, with all that it made.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
