"""Drives sandbox-bench itself over the emulated gateway and the real open-source server: the fixture and its counts, what is tracked, lost
gateways, hard cases. The official client, unmodified, says what is there.

    harness.py SERVER_URL DIRECTORY

Run by `tests/sdk/polyaxon/run --real`, which sets SANDBOX_EMULATOR and SANDBOX_BENCH. The project is that of `check.py`, and there already.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import tracked
from tracked import Evidence, client, conditions, equal

SERVER, SCRATCH = sys.argv[1], pathlib.Path(sys.argv[2])
PROJECT = "default/bench"
RUNS = f"/api/v1/{PROJECT}/runs"
DOCKER = not os.environ.get("SANDBOX_BENCH_NO_DOCKER")
# The state of `local` cannot be on an overlay, which a container's own directories are.
STATE = os.environ.get("TEST_STATE_DIR") or ("/dev/shm" if pathlib.Path("/.dockerenv").exists() else "/var/tmp")
# Of a command of sandbox-bench, and of everything else that is waited for.
LIMIT = 240


def until(what, condition):
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {LIMIT} s")


class Gateway:
    """The emulated gateway over the real server."""

    def __init__(self, state, port="0"):
        command = [os.environ["SANDBOX_EMULATOR"], "polyaxon", "--upstream", SERVER, "--port", port, "--state", state]
        # Its input is held open: it ends, and destroys everything, when that does.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.state, self.variables = state, {}
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.url = line.split()[-1]
                continue
            name, value = line.removeprefix("export ").strip().split("=", 1)
            self.variables[name] = value
            if name == "POLYAXON_EMULATOR_PROJECT":
                break
        equal(self.variables["POLYAXON_EMULATOR_PROJECT"], PROJECT)
        os.environ.update(self.variables)

    def admin(self, method, route, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/__emulator/{route}", data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or "null")

    def faults(self, *rules):
        self.admin("PUT", "faults", {"rule": list(rules)})

    def killed(self):
        """Kills it, as a machine that dies; returns the one that takes its place."""
        self.process.kill()
        self.process.wait(timeout=LIMIT)
        return lambda: Gateway(self.state, self.url.rsplit(":", 1)[1])

    def end(self):
        equal(self.admin("GET", "violations"), [])
        equal(self.admin("GET", "state")["machines"], [])
        self.process.stdin.close()
        equal(self.process.wait(timeout=LIMIT), 0)


class Work:
    """A place in which sandbox-bench is run."""

    def __init__(self, name, state):
        self.directory, self.state = SCRATCH / name, state
        self.directory.mkdir()
        (self.directory / "bench.toml").write_text(f"[backend.polyaxon]\nproject = '{PROJECT}'\n")

    def start(self, line):
        environment = {**os.environ, "HOME": str(SCRATCH), "XDG_STATE_HOME": self.state, "XDG_CACHE_HOME": f"{self.state}/cache"}
        pipe = subprocess.PIPE
        command = [os.environ["SANDBOX_BENCH"], *line.split()]
        return subprocess.Popen(command, cwd=self.directory, env=environment, stdout=pipe, stderr=pipe, text=True)

    def bench(self, line, code=0):
        """Runs a command, which must end with this code. Returns all that it said."""
        return self.ended(self.start(line), line, code)

    def ended(self, process, line, code):
        try:
            stdout, stderr = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"`{line}` did not end: {process.communicate()}") from None
        assert process.returncode == code, f"`{line}` ended with {process.returncode}, not {code}\n{stdout}\n{stderr}"
        print(f"$ sandbox-bench {line}    # exit code {code}")
        return stdout + stderr

    def run(self):
        [directory] = (self.directory / "results").iterdir()
        return Evidence(directory)


def counted(evidence, mode, repetitions):
    """The host's counts, and every file of the run."""
    expected = [1] * repetitions if mode == "fresh" else list(range(1, repetitions + 1))
    trials = evidence.lines("trials.jsonl")
    for backend in evidence.backends:
        equal([trial["counted"] for trial in trials if trial["backend"] == backend], expected)
    files = {"manifest.json", "task.sh", "trials.jsonl", "journal.jsonl", "receipts.jsonl", "cases.jsonl", "summary.json"}
    files |= {f"launch-{backend}.json" for backend in evidence.backends} | {"component-polyaxon.json"}
    files |= {f"inputs/{trial['trial']}.txt" for trial in trials} | {f"reports/{trial['trial']}.json" for trial in trials}
    files |= {f"cleanup-{trial['sandbox']['id']}.json" for trial in trials}
    equal(set(evidence.files()), files)
    sandboxes = {trial["sandbox"]["id"] for trial in trials}
    equal(len(sandboxes), len(evidence.backends) * (repetitions if mode == "fresh" else 1))
    equal([evidence.json(f"cleanup-{one}.json")["confirmed"] for one in sandboxes], [True] * len(sandboxes))
    for cell in evidence.json("summary.json")["cells"]:
        figures = [cell[name] for name in ("attempted", "succeeded", "failed", "unattempted", "command_timeouts")]
        equal(figures, [repetitions, repetitions, 0, 0, 0])
        own = [trial["times"] for trial in trials if trial["backend"] == cell["backend"]]
        # Of so few, the nearest rank of p95 is the last.
        equal((cell["command"]["n"], cell["command"]["p95_us"]), (repetitions, max(one["command_us"] for one in own)))
        assert cell["wall_seconds_per_success"] >= sum(one["command_us"] for one in own) / 1e6 / repetitions
    records(evidence)


def records(evidence):
    """Receipts and case reports can be read on their own."""
    cases = {case["case"]: case for case in evidence.lines("cases.jsonl")}
    receipts = evidence.lines("receipts.jsonl")
    equal(len(receipts), len(cases))
    for receipt in receipts:
        case = cases[receipt["case"]]
        equal((receipt["task"], receipt["sandbox"]), (case["task"], case["sandbox"]["id"]))
        assert receipt["step"] >= 1 and receipt["tool"] and receipt["duration_us"] > 0, receipt
        flags = ("exit_code", "timed_out", "stdout_truncated", "stderr_truncated", "matches")
        equal([receipt[flag] for flag in flags], [0, False, False, False, True])
        equal((case["expected"], case["decision"]), (case["observed"], "accepted"))
        evaluator = case["evaluator"]
        assert evaluator["version"] and all(digest.startswith("sha256:") for digest in evaluator["material"].values())
        assert evaluator["material"], "the evaluator's revision is told"


def fixtures(gateway, state):
    """The same counts on every backend, and all of it at the server, which does not change when it is published again."""
    backends = "local,docker,polyaxon" if DOCKER else "local,polyaxon"
    for mode in ("fresh", "reuse"):
        work = Work(f"fixture-{mode}", state)
        said = work.bench(f"fixture --backend {backends} --mode {mode} --repetitions 5 --track polyaxon")
        assert "tracked:  polyaxon http://" in said and "missing" not in said, said
        evidence = work.run()
        counted(evidence, mode, 5)
        before = tracked.everything(evidence)
        said = work.bench(f"track results/{evidence.id}")
        assert f"(0 files sent, {len(evidence.files())} were there already)" in said, said
        equal(tracked.everything(evidence), before)
    # Without its log it is found again, and sent again.
    (evidence.directory / tracked.LOG).unlink()
    said = work.bench(f"track results/{evidence.id}")
    assert f"({len(evidence.files())} files sent, 0 were there already)" in said, said
    equal(tracked.everything(evidence)[::2], before[::2])
    tracked.imported(evidence.found())


def tasks(gateway, state):
    """A run of tasks, and its report."""
    work = Work("run", state)
    work.bench("run --backend local,polyaxon --dataset smoke --limit 2 --solver gold --track polyaxon")
    evidence = work.run()
    before = tracked.everything(evidence)
    digests = evidence.digests()
    said = work.bench(f"report results/{evidence.id} --rates csb-compat --track polyaxon")
    changed = [path for path, digest in evidence.digests().items() if digests.get(path) != digest]
    kept = len(evidence.files()) - len(changed)
    assert changed and f"({len(changed)} files sent, {kept} were there already)" in said, (changed, said)
    equal(tracked.everything(evidence)[0], before[0])


def upload(effect, **more):
    return {"method": "POST", "path": "/streams/v1/**/artifact", "effect": effect, **more}


def interrupted(gateway, state):
    """A process that is killed between two files, and one that finds the way barred: each goes on where it was."""
    work = Work("interrupted", state)
    work.bench("fixture --backend local --repetitions 4")
    evidence = work.run()
    log, line = evidence.directory / tracked.LOG, f"track results/{evidence.id}"
    total = len(evidence.files())

    def uploaded():
        return log.read_text().count('"uploaded"') if log.exists() else 0

    gateway.faults(upload({"kind": "delay", "ms": 400}))
    running = work.start(line)
    until("three files", lambda: uploaded() >= 3)
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=LIMIT)
    there = uploaded()
    assert 3 <= there < total, there
    gateway.faults()
    run = client(evidence.found().uuid)
    equal(conditions(run), ["created", "running"])
    assert there <= len(tracked.published(run, evidence)) < total

    gateway.faults(upload({"kind": "answer", "status": 400, "body": "Invalid path"}, skip=2, times=1))
    assert "1 missing" in work.bench(line, 3)
    equal(conditions(run), ["created", "running"])
    gateway.faults()
    assert f"(1 files sent, {total - 1} were there already)" in work.bench(line)
    tracked.everything(evidence)


def barred(gateway, state):
    """A tracker that takes no file changes nothing of the run; what is missing is sent later."""
    work = Work("barred", state)
    gateway.faults(upload({"kind": "answer", "status": 503}))
    said = work.bench("fixture --backend local,polyaxon --repetitions 1 --track polyaxon")
    gateway.faults()
    evidence = work.run()
    assert f"sandbox-bench track results/{evidence.id} --tracker polyaxon" in said and "missing" in said, said
    counted(evidence, "fresh", 1)
    equal(conditions(client(evidence.found().uuid)), ["created", "running"])
    work.bench(f"track results/{evidence.id}")
    tracked.everything(evidence)


def killed(gateway, state, effect, made):
    """The gateway is killed while it works on the third submission of five. `made`: the server has taken it."""
    work = Work(f"killed-{effect}", state)
    gateway.faults({"method": "POST", "path": RUNS, "skip": 2, "times": 1, "effect": {"kind": effect, "ms": 600_000}})
    line = "fixture --backend polyaxon --repetitions 5"
    running = work.start(line)

    def submitted():
        journals = list(work.directory.glob("results/*/journal.jsonl"))
        tags = re.findall(r'"event":"intent","tag":"([^"]+)"', journals[0].read_text()) if journals else []
        if len(tags) < 3 or gateway.admin("GET", "faults") != [3]:
            return None
        there = client().list(query=f"name:{tags[2]}").results
        return tags[2] if bool(there) == made else None

    tag = until("the third submission", submitted)
    again = gateway.killed()
    work.ended(running, line, 4)
    evidence = work.run()
    summary = evidence.json("summary.json")
    [cell] = summary["cells"]
    equal([cell[name] for name in ("attempted", "succeeded", "failed", "unattempted")], [3, 2, 1, 2])
    equal((cell["failures"], summary["uncertain"]), ({"submission": 1}, [{"backend": "polyaxon", "tag": tag}]))
    equal(evidence.json(f"cleanup-{tag}.json")["confirmed"], False)
    # While the gateway is away nothing is resolved, and nothing more is launched.
    assert "may still exist" in work.bench("reap", 4)
    assert tag in work.bench(line, 4)

    gateway = again()
    assert tag in work.bench(line, 4)
    print(work.bench("reap").rstrip())
    summary = evidence.json("summary.json")
    equal((summary["uncertain"], summary["cleanup_unconfirmed"]), ([], 0))
    runs = client().list(query=f"meta_info.correlation_run:{evidence.evaluation},live_state:0", limit=100).results
    equal((len(runs), {run.status for run in runs}), (3 if made else 2, {"stopped"}))
    equal(client().list(query=f"meta_info.correlation_run:{evidence.evaluation}").results, [])
    work.bench("fixture --backend polyaxon --repetitions 1")
    return gateway


def hard(gateway, state):
    """The hard cases, each as it has to be."""
    work = Work("hard", state)
    said = work.bench("doctor --backend polyaxon --hard --format json")
    [diagnosis] = json.loads(said[: said.rindex("]") + 1])
    cases = {case["name"]: case["state"] for case in diagnosis["hard"]}
    equal((len(cases), set(cases.values()), diagnosis["clean"]), (8, {"ok"}, True))
    for case in diagnosis["hard"]:
        print(f"  {case['name']}: {case['state']}: {case['observed']}")


def main():
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-sdk-", dir=STATE) as state:
        gateway = Gateway(f"{state}/emulator")
        work = (gateway, f"{state}/local")
        fixtures(*work)
        tasks(*work)
        interrupted(*work)
        barred(*work)
        hard(*work)
        for effect, made in (("delay", False), ("late-response", True)):
            gateway = killed(gateway, f"{state}/local", effect, made)
        gateway.end()
    print("sandbox-bench and the real server agree")


main()
