"""The official Python client, unmodified, drives the Vercel emulator.

EMULATOR_URL=http://127.0.0.1:PORT VERCEL_TOKEN=.. VERCEL_TEAM_ID=.. VERCEL_PROJECT_ID=.. python check.py
"""

import json
import os
import subprocess
from contextlib import contextmanager
from datetime import timedelta

from vercel.sandbox.sync import (
    NetworkPolicy,
    SandboxApiError,
    SandboxCredentials,
    SandboxFilesystemWriteError,
    SandboxPathNotFoundError,
    SandboxQueryByCreatedAt,
    SandboxQueryByName,
    SandboxResources,
    SandboxServiceOptions,
    SnapshotSource,
    SyncSandboxClient,
    TagFilter,
)

from emulator import EMULATOR, admin, check, passed, requests, same, script


def client(**changes):
    values = {
        "token": os.environ["VERCEL_TOKEN"],
        "team_id": os.environ["VERCEL_TEAM_ID"],
        "project_id": os.environ["VERCEL_PROJECT_ID"],
    } | changes
    credentials = SandboxCredentials(**values)
    options = SandboxServiceOptions(base_url=f"{EMULATOR}/api", credentials_factory=lambda: credentials)
    return SyncSandboxClient.create(options=options)


@contextmanager
def refused(status, code=None):
    try:
        yield
    except SandboxFilesystemWriteError as error:
        cause = error.cause
        assert (cause.status_code, cause.code) == (status, code or cause.code), cause
    except SandboxApiError as error:
        assert (error.status_code, error.code) == (status, code or error.code), error
    else:
        raise AssertionError(f"succeeded, not refused with {status}")


def run(sandbox, script, **options):
    return sandbox.run_process("sh", ["-c", script], capture_output=True, **options)


service = client()
managed = service.create_sandbox(
    name="py-main",
    persistent=False,
    execution_time_limit=600,
    resources=SandboxResources(vcpus=2, memory=4096),
    env={"DEFAULT": "1"},
    tags={"run": "py"},
    network_policy=NetworkPolicy.allow_all(),
)
with managed as main:
    with check("create answers with what was asked for, and waits until it runs"):
        same((main.name, main.status, main.persistent), ("py-main", "running", False))
        same((main.current_session.vcpus, main.current_session.memory), (2, 4096))
        same(main.network_policy.mode, "allow-all")

    with check("a name is taken once"), refused(409, "conflict"):
        service.create_sandbox(name="py-main", persistent=False)

    with check("files are written with their modes and read back"):
        binary = bytes(at * 7 % 256 for at in range(70_000))
        main.fs.write_text("a.txt", "relative")
        main.fs.write_bytes("/tmp/binary", binary)
        main.fs.write_text("/vercel/tests/run.sh", "#!/bin/sh\necho ran", mode=0o755)
        long = "long-directory-name/" * 9 + "файл.txt"
        main.fs.write_text(long, "long")
        same(main.fs.read_text("a.txt"), "relative")
        same(main.fs.read_bytes("/tmp/binary"), binary)
        same(main.fs.read_text(long), "long")
        same(main.run_process("/vercel/tests/run.sh", capture_output=True).stdout, "ran\n")
        same([entry.path for entry in main.fs.listdir("tests")], ["run.sh"])
        same((main.fs.exists("a.txt"), main.fs.is_dir("a.txt"), main.fs.exists("b")), (True, False, False))
        try:
            main.fs.read_bytes("missing")
            raise AssertionError("a missing file was read")
        except SandboxPathNotFoundError:
            pass

    with check("the file routes are those of the default user"), refused(400, "file_error"):
        main.fs.write_text("/root-owned/x", "x")

    with check("directories are made with or without parents"):
        main.fs.mkdir("one/two")
        assert main.fs.is_dir("/vercel/one/two")
        with refused(400, "file_error"):
            main.fs.mkdir("no/parent", recursive=False)

    with check("a process gets directory, environment and user, and keeps its streams apart"):
        text = 'echo "$DEFAULT $OWN $(pwd) $(id -u)"; echo err >&2; exit 3'
        done = run(main, text, cwd="/tmp", env={"OWN": "2"}, sudo=True)
        same((done.returncode, done.stdout, done.stderr), (3, "1 2 /tmp 0\n", "err\n"))
        same(run(main, "id -un").stdout, "ubuntu\n")

    with check("a process is followed, waited for, found and listed"):
        process = main.create_process("sh", ["-c", "echo one; sleep 0.3; echo two >&2; exit 7"])
        same(process.communicate(), ("one\n", "two\n"))
        same(process.returncode, 7)
        same(main.get_process(process.id).returncode, 7)
        same(main.query_processes()[0].id, process.id)

    with check("standard input arrives whole and ends"):
        data = "line\n" * 200_000
        process = main.create_process("wc", ["-c"], stdin=subprocess.PIPE)
        same(process.communicate(data)[0].strip(), str(len(data)))
        done = main.run_process("cat", input="hello", capture_output=True)
        same(done.stdout, "hello")

    with check("a limit and signals end a process"):
        slow = main.run_process("sleep", ["30"], kill_after=0.3, capture_output=True)
        same(slow.returncode, 137)
        process = main.create_process("sleep", ["30"])
        process.terminate()
        same(process.wait(), 143)
        process = main.create_process("sleep", ["30"])
        process.kill()
        same(process.wait(), 137)

    with check("another user is made and used"):
        user = main.create_user("agent")
        user.fs.write_text("note.txt", "mine")
        same(user.fs.read_text("note.txt"), "mine")
        done = user.run_process("sh", ["-c", "id -un; pwd"], capture_output=True)
        same(done.stdout, "agent\n/home/agent\n")

    with check("network policies are shown in the client's own form"):
        session = main.current_session.update_network_policy(NetworkPolicy.custom(allow={"a.com": [], "*.b.com": []}))
        same(set(session.network_policy.allowed_domains), {"a.com", "*.b.com"})
        same(main.current_session.update_network_policy(NetworkPolicy.deny_all()).network_policy.mode, "deny-all")
        main.current_session.update_network_policy(NetworkPolicy.allow_all())

    with check("time is extended, and settings change"):
        before = main.current_session.execution_time_limit
        main.extend_execution_time_limit(60)
        same(main.current_session.execution_time_limit - before, timedelta(seconds=60))
        main.update(tags={"run": "py", "more": "1"})
        same(main.tags, {"run": "py", "more": "1"})

    with check("lists have pages, a tag, a prefix"):
        made = []
        for at in range(4):
            made.append(service.create_sandbox(name=f"py-list-{at}", persistent=False, tags={"group": "list"}))
        query = SandboxQueryByName(sort_order="asc", name_prefix="py-list-")
        names = [sandbox.name for sandbox in service.query_sandboxes(query=query, page_size=2)]
        same(names, [f"py-list-{at}" for at in range(4)])
        query = SandboxQueryByCreatedAt(tag=TagFilter(key="group", value="list"))
        same(len(list(service.query_sandboxes(query=query))), 4)
        for sandbox in made:
            sandbox.__exit__(None, None, None)
        same(list(service.query_sandboxes(query=query)), [])

    with check("a snapshot ends its session and starts others"):
        with service.create_sandbox(name="py-source", persistent=False) as source:
            run(source, "echo kept > /tmp/kept; echo root > /opt/root", sudo=True)
            snapshot = source.snapshot(expiration=timedelta(days=1))
            same(snapshot.status, "created")
            origin = SnapshotSource(snapshot_id=snapshot.id)
            with service.create_sandbox(name="py-warm", persistent=False, source=origin) as warm:
                same(run(warm, "cat /tmp/kept /opt/root").stdout, "kept\nroot\n")
            same([one.id for one in service.query_snapshots(name="py-source")], [snapshot.id])
            snapshot = service.get_snapshot(snapshot_id=snapshot.id).delete()
            with refused(410, "snapshot_not_found"):
                service.create_sandbox(name="py-gone", persistent=False, source=origin)

    with check("a persistent sandbox is saved when it stops, resumed, and forked"):
        with service.create_sandbox(name="py-persistent", persistent=True) as sandbox:
            sandbox.fs.write_text("state", "saved")
            sandbox.stop()
            same(sandbox.fs.read_text("state"), "saved")
            with service.fork_sandbox(source_sandbox="py-persistent", name="py-fork") as fork:
                same(fork.fs.read_text("state"), "saved")
            same(len(list(sandbox.list_sessions())), 2)

    with check("wrong credentials are refused"):
        with refused(401):
            client(token="wrong").get_sandbox(name="py-main")
        with refused(403):
            client(team_id="team_other").get_sandbox(name="py-main")
        with refused(403):
            client(project_id="prj_other").get_sandbox(name="py-main")
        with refused(404, "not_found"):
            service.get_sandbox(name="py-nobody")

    with check("fault: a pending session is waited for"):
        pending = {"kind": "flag", "name": "pending", "value": 700}
        script({"method": "POST", "path": "/api/v3/sandboxes", "effect": pending})
        with service.create_sandbox(name="py-pending", persistent=False) as sandbox:
            same(sandbox.status, "running")
        assert requests("GET", "/v2/sandboxes/py-pending")

    with check("fault: an error on create is reported at once"):
        effect = {"kind": "answer", "status": 503}
        script({"method": "POST", "path": "/api/v3/sandboxes", "effect": effect})
        with refused(503):
            service.create_sandbox(name="py-503", persistent=False)
        same(len(requests("POST", "/v3/sandboxes")), 1)

    with check("fault: a command's stream that is cut goes on from the logs"):
        cut = {"kind": "cut", "after": 300, "ending": "close"}
        script({"method": "POST", "path": "/api/v2/sandboxes/sessions/*/cmd", "effect": cut})
        done = run(main, "echo a; sleep 0.3; echo b; exit 4")
        same((done.returncode, done.stdout), (4, "a\nb\n"))
        same(len(requests("POST", "/cmd")), 1)

    with check("fault: logs that are cut are followed again without repetition"):
        process = main.create_process("sh", ["-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done"])
        cut = {"kind": "cut", "after": 90, "ending": "reset"}
        script({"path": "/api/v2/sandboxes/sessions/*/cmd/*/logs", "times": 1, "effect": cut})
        same(process.communicate()[0], "1\n2\n3\n4\n5\n6\n")
        assert len(requests("GET", "/logs")) >= 2

    with check("fault: a stopping sandbox is resumed and the command repeated once"):
        body = json.dumps({"error": {"code": "sandbox_stopping", "message": "stopping"}})
        answer = {"kind": "answer", "status": 422, "headers": {"content-type": "application/json"}, "body": body}
        script({"method": "POST", "path": "/api/v2/sandboxes/sessions/*/cmd", "effect": answer})
        with refused(422, "sandbox_stopping"):
            run(main, ":")
        same(len(requests("POST", "/cmd")), 2)

with check("nothing is left, and nothing was against the protocol"):
    state = admin("GET", "state")
    same((state["sandboxes"], state["snapshots"], state["machines"]), ([], [], []))
    same(admin("GET", "violations"), [])
service.close()
print(f"vercel-sandbox: {len(passed)} checks passed")
