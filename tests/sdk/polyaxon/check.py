"""Drives the Polyaxon emulator with the official Python client, unmodified, and asserts what it gets.

Run by `tests/sdk/polyaxon/run`, which sets POLYAXON_HOST, POLYAXON_AUTH_TOKEN, POLYAXON_EMULATOR_PROJECT and EMULATOR_URL.
With SERVER=real the API behind the gateway, and the artifacts of runs, are those of the real open-source server.
"""

import json
import os
import tempfile
import time
import urllib.request
import uuid

from polyaxon.client import ClientConfig, PolyaxonClient, ProjectClient, RunClient, SandboxClient

EMULATOR = os.environ["EMULATOR_URL"]
OWNER, PROJECT = os.environ["POLYAXON_EMULATOR_PROJECT"].split("/")
REAL = os.environ.get("SERVER") == "real"
CORRELATION = f"corr-{uuid.uuid4().hex[:12]}"


def admin(method, route, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{EMULATOR}/__emulator/{route}", data, method=method)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def fault(method, path, effect, times=1):
    admin("POST", "faults", {"rule": [{"method": method, "path": path, "effect": effect, "times": times}]})


def flag(name, value=0):
    return {"kind": "flag", "name": name, "value": value}


def equal(got, expected):
    assert got == expected, f"\n     got {got!r}\nexpected {expected!r}"


def raises(action, *words):
    try:
        action()
    except Exception as error:  # The client raises several kinds.
        assert all(word in str(error) for word in words), f"{words} are not in {error!r}"
        return error
    raise AssertionError("an error was expected, and nothing was raised")


def client():
    config = ClientConfig(host=os.environ["POLYAXON_HOST"], token=os.environ["POLYAXON_AUTH_TOKEN"])
    return PolyaxonClient(config=config)


def sandbox_client(run_uuid=None):
    return SandboxClient(owner=OWNER, project=PROJECT, run_uuid=run_uuid, client=client(), manual_exceptions_handling=True)


def run_client(run_uuid=None):
    return RunClient(owner=OWNER, project=PROJECT, run_uuid=run_uuid, client=client(), manual_exceptions_handling=True)


def until(what, condition, limit=30):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {limit} s")


def status(uuid):
    return run_client(uuid).get_statuses()[0]


def running(uuid):
    until("running", lambda: status(uuid) == "running")
    until("an answer of the daemon", lambda: answers(uuid))


def answers(uuid):
    try:
        return sandbox_client(uuid).ping().status
    except Exception:
        return None


def created_and_found():
    sandbox = sandbox_client()
    meta = {"correlation": CORRELATION}
    run = sandbox.create(name=CORRELATION, tags=[CORRELATION], meta_info=meta, image="debian", cpu="1..2")
    equal(len(run.uuid), 32)
    running(run.uuid)
    fresh = run_client(run.uuid)
    fresh.refresh_data()
    equal((fresh.run_data.kind, fresh.run_data.status, fresh.run_data.tags), ("service", "running", [CORRELATION]))
    equal(fresh.settings.namespace, "polyaxon")
    kinds = [getattr(condition.type, "value", condition.type) for condition in fresh.get_statuses()[1]]
    equal([kind for kind in kinds if kind != "created"], ["compiled", "queued", "scheduled", "starting", "running"])
    for query in (f"meta_info.correlation:{CORRELATION}", f"name:{CORRELATION}"):
        found = run_client().list(query=query, limit=5)
        equal([one.uuid for one in found.results], [run.uuid])
    if not REAL:
        # The real server's tag filter finds nothing on SQLite.
        equal([one.uuid for one in run_client().list(query=f"tags:{CORRELATION}").results], [run.uuid])
    return sandbox


def processes(sandbox):
    process = sandbox.process
    result = process.exec(command=["sh", "-c", "echo out; echo err >&2; exit 3"])
    equal((result.exit_code, result.stdout, result.stderr, result.timed_out), (3, "out\n", "err\n", False))
    equal((result.stdout_truncated, result.signal), (False, None))
    result = process.exec(command=["sh", "-c", "pwd; echo $A; cat"], workdir="/usr", env={"A": "b"}, stdin=b"in")
    equal(result.stdout, "/usr\nb\nin")
    result = process.exec(command=["sleep", "30"], timeout_ms=300)
    equal((result.timed_out, result.exit_code == 0), (True, False))
    raises(lambda: process.exec(command=["true"], env={"POLYAXON_X": "1"}))
    raises(lambda: process.exec(command=["true"], workdir="/no/such"))

    with process.exec_stream(command=["sh", "-c", "echo one; sleep 0.2; echo two"]) as stream:
        events = list(stream)
    equal((events[0]["type"], events[-1]["type"], events[-1]["exit_code"]), ("start", "execution_complete", 0))
    equal("".join(event["text"] for event in events if event["type"] == "stdout"), "one\ntwo\n")

    background = process.exec_bg(command=["sh", "-c", "echo bg; sleep 0.3; echo done"], tag="t1")
    assert background.id, "a background command has an id"
    equal([one.exec_id for one in process.list(tag="t1").execs], [background.id])
    equal("".join(background.iter_stdout(timeout=10, interval=0.1)), "bg\ndone\n")
    ended = background.wait(timeout=10, interval=0.1)
    equal((ended.state, ended.exit_code), ("exited", 0))
    background.delete()
    equal(process.list(tag="t1").execs, [])

    endless = process.exec_bg(command=["sleep", "60"], tag="t2")
    until("a pid", lambda: endless.get().pid)
    endless.kill()
    ended = endless.wait(timeout=10, interval=0.1)
    equal(ended.state, "signaled")

    fault("POST", "/sandbox/**/exec", flag("truncated-output", 4))
    result = process.exec(command=["echo", "0123456789"])
    equal((result.stdout, result.stdout_truncated), ("0123", True))


def files(sandbox):
    fs = sandbox.fs
    fs.mkdir("/srv/sdk/deep", parents=True)
    data = bytes(range(256)) * 600
    with tempfile.TemporaryDirectory() as directory:
        local = os.path.join(directory, "up")
        with open(local, "wb") as file:
            file.write(data)
        fs.upload_file(local, "/srv/sdk/deep/file", mode=0o640)
        open(os.path.join(directory, "empty"), "wb").close()
        fs.upload_file(os.path.join(directory, "empty"), "/srv/sdk/empty")
        fs.download_file("/srv/sdk/deep/file", os.path.join(directory, "down"))
        with open(os.path.join(directory, "down"), "rb") as file:
            equal(file.read() == data, True)
    seen = fs.stat("/srv/sdk/deep/file")
    equal((seen.type, seen.size, seen.mode, seen.uid), ("file", len(data), "0640", 0))
    equal(fs.stat("/srv/sdk/empty").size, 0)
    names = sorted((entry.name, entry.type) for entry in fs.ls("/srv/sdk").entries)
    equal(names, [("deep", "dir"), ("empty", "file")])
    equal(fs.read_bytes("/srv/sdk/deep/file", offset=256, length=2), b"\x00\x01")
    raises(lambda: fs.stat("/srv/sdk/nothing"), "no such file")
    raises(lambda: fs.rm("/srv/sdk"))
    fs.rm("/srv/sdk", recursive=True)
    raises(lambda: fs.ls("/srv/sdk"))


def stopped(sandbox):
    run = run_client(sandbox.run_uuid)
    run.stop()
    until("stopped", lambda: status(sandbox.run_uuid) == "stopped")
    raises(sandbox.ping)
    run.stop()
    equal(status(sandbox.run_uuid), "stopped")
    equal(admin("GET", "state")["machines"], [])


def refused():
    raises(lambda: run_client().create(name="x", content='{"kind":"component","run":{"kind":"servce"}}'))
    raises(lambda: run_client("0" * 32).get_statuses())
    raises(lambda: sandbox_client("0" * 32).ping())
    raises(lambda: sandbox_client().create(content='{"kind":"component","plugins":{"sandbox":true},"run":{"kind":"job"}}'))
    admin("DELETE", "violations")


def held_for_approval():
    fault("POST", f"/api/v1/*/{PROJECT}/runs", flag("needs-approval"))
    component = {"kind": "component", "plugins": {"sandbox": True}, "run": {"kind": "service", "container": {"image": "i"}}}
    operation = {"kind": "operation", "isApproved": False, "component": component}
    uuid = run_client().create(name="held", content=json.dumps(operation)).uuid
    run = run_client(uuid)
    run.refresh_data()
    equal(run.run_data.pending, "approval")
    for _ in range(3):
        if run.run_data.pending != "approval":
            break
        run.approve()
        run.refresh_data()
    until("running", lambda: status(uuid) == "running")
    run.stop()
    until("stopped", lambda: status(uuid) == "stopped")


def tracked():
    run = run_client()
    run.create(name="tracked", content=None, is_managed=False, tags=["sandbox-bench"])
    run.log_status("running", reason="Check", message="by the check")
    run.log_inputs(backend="polyaxon", repetitions=3)
    run.log_outputs(total=10)
    run.log_tags(["more"])
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "report.json")
        with open(path, "w") as file:
            file.write('{"ok": true}')
        run.upload_artifact(path, path="outputs/bench", untar=False, overwrite=True)
        equal(run.get_artifacts_tree("outputs/bench").files.get("report.json"), 12)
        back = run.download_artifact("outputs/bench/report.json", path_to=directory + "/back")
        with open(back, "rb") as file:
            equal(file.read(), b'{"ok": true}')
    run.log_artifact_ref(path="outputs/bench/report.json", kind="file", name="report")
    # The server writes lineage a moment after it has answered.
    lineage = until("lineage", lambda: run.get_artifacts_lineage(query="name:report").results)
    equal([one.name for one in lineage], ["report"])
    found = run.list(query=f"uuid:{run.run_uuid}").results
    equal([one.outputs for one in found], [{"total": 10}])
    run.log_succeeded()
    run.refresh_data()
    equal((run.run_data.status, run.run_data.inputs["repetitions"], run.run_data.outputs["total"]), ("succeeded", 3, 10))
    equal(sorted(run.run_data.tags), ["more", "sandbox-bench"])


def main():
    if REAL:
        projects = ProjectClient(owner=OWNER, project=PROJECT, client=client(), manual_exceptions_handling=True)
        try:
            projects.refresh_data()
        except Exception:
            projects.create({"name": PROJECT})
    sandbox = created_and_found()
    processes(sandbox)
    files(sandbox)
    admin("DELETE", "violations")
    stopped(sandbox)
    held_for_approval()
    refused()
    tracked()
    equal(admin("GET", "violations"), [])
    print("the official Polyaxon client and the emulator agree")


main()
