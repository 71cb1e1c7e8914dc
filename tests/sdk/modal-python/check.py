"""The official Python client, unmodified, drives the Modal emulator.

EMULATOR_URL=http://127.0.0.1:PORT MODAL_SERVER_URL=.. MODAL_TOKEN_ID=.. MODAL_TOKEN_SECRET=.. python check.py
"""

import io
import tempfile
import time
from contextlib import contextmanager, redirect_stdout

import modal
from modal.exception import (
    AlreadyExistsError,
    AuthError,
    ConflictError,
    InvalidError,
    NotFoundError,
    RemoteError,
    ResourceExhaustedError,
    SandboxFilesystemDirectoryNotEmptyError,
    SandboxFilesystemIsADirectoryError,
    SandboxFilesystemNotADirectoryError,
    SandboxFilesystemNotFoundError,
    SandboxFilesystemPathAlreadyExistsError,
    ServiceError,
)

from emulator import admin, check, passed, same, script

CONTROL = "/modal.client.ModalClient/"
ROUTER = "/modal.task_command_router.TaskCommandRouter/"
BASE = "debian:bookworm-slim"


def fault(path, name, value=0, **rule):
    return {"path": path, "effect": {"kind": "flag", "name": name, "value": value}, **rule}


def methods():
    """The methods that were called since the check began, in the order of their answers."""
    return [request["path"].rsplit("/", 1)[1] for request in admin("GET", "requests")]


@contextmanager
def raises(kind, text=""):
    try:
        yield
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"succeeded, no {kind.__name__}")


def run(sandbox, script, **options):
    process = sandbox.exec("sh", "-c", script, **options)
    return process.wait(), process.stdout.read(), process.stderr.read()


def ended(sandbox):
    """The exit code of a sandbox that ends."""
    sandbox.wait(raise_on_termination=False)
    return sandbox.returncode


def drop(sandbox):
    same(sandbox.terminate(wait=True), 137)


with check("an app that is missing is not found, and made when asked for"):
    with raises(NotFoundError):
        modal.App.lookup("py-missing")
    app = modal.App.lookup("py-bench", create_if_missing=True)
    same(modal.App.lookup("py-bench").app_id, app.app_id)

plain = modal.Image.from_registry(BASE)
image = (
    plain.env({"FROM_IMAGE": "1"})
    .run_commands("mkdir /made && echo built > /made/file")
    .dockerfile_commands("WORKDIR /made", "RUN pwd > where && printenv FROM_IMAGE >> where")
)

with check("an image is built layer by layer, and a sandbox starts from it"):
    main = modal.Sandbox.create(
        "sleep",
        "infinity",
        app=app,
        image=image,
        env={"DEFAULT": "1"},
        tags={"run": "py", "attempt": "1"},
        name="py-main",
        timeout=600,
        cpu=(1, 2),
        memory=(256, 1024),
    )
    seen = methods()
    same(seen[:3], ["EnvironmentGetOrCreate", "ImageGetOrCreate", "ImageJoinStreaming"])
    same(seen[-2:], ["AuthTokenGet", "SandboxCreateV2"])
    same(run(main, "cat file where"), (0, "built\n/made\n1\n", ""))

with check("what was built is not built again"):
    again = modal.Sandbox.create(app=app, image=modal.Image.from_registry(BASE))
    assert "ImageJoinStreaming" not in methods(), methods()
    drop(again)

with check("the log of a slow build arrives, and a failing build says why"):
    script(fault(f"{CONTROL}ImageGetOrCreate", "slow-build", 500, times=1))
    shown = io.StringIO()
    with redirect_stdout(shown), modal.enable_output():
        failing = plain.run_commands("echo to-be-seen; exit 3")
        with raises(RemoteError, "exit code: 3"):
            modal.Sandbox.create(app=app, image=failing)
    assert "\nto-be-seen\n" in shown.getvalue(), shown.getvalue()
    missing = modal.Image.from_registry("missing.example/none:1")
    script(fault(f"{CONTROL}ImageGetOrCreate", "build-fails", 4, times=1))
    with raises(RemoteError):
        modal.Sandbox.create(app=app, image=missing)

with check("a command has output, error output and an exit code"):
    same(run(main, "echo out; echo err >&2; exit 7"), (7, "out\n", "err\n"))
    seen = methods()
    same((seen[0], sorted(set(seen[1:]))), ("TaskExecStart", ["TaskExecStdioRead", "TaskExecWait"]))
    same(run(main, "kill -9 $$")[0], 137)
    same(main.exec("/no/such/program").wait(), 127)
    binary = main.exec("head", "-c", "300000", "/dev/zero", text=False)
    same(binary.stdout.read(), bytes(300_000))

with check("environment and directory are the image's, the sandbox's and the command's"):
    same(run(main, "echo $FROM_IMAGE $DEFAULT; pwd"), (0, "1 1\n/made\n", ""))
    same(run(main, "echo $DEFAULT $OWN; pwd", env={"OWN": "2"}, workdir="/tmp"), (0, "1 2\n/tmp\n", ""))

with check("input reaches a command, and its end too"):
    process = main.exec("sh", "-c", "read first; cat; echo $first done")
    process.stdin.write("one\ntwo\n")
    process.stdin.drain()
    process.stdin.write_eof()
    process.stdin.drain()
    same((process.stdout.read(), process.wait()), ("two\none done\n", 0))
    same(methods().count("TaskExecStdinWrite"), 2)

with check("a command that runs is polled"):
    process = main.exec("sleep", "0.5")
    same(process.poll(), None)
    same(process.wait(), 0)
    same(process.poll(), 0)

with check("a command's time limit ends it"):
    process = main.exec("sh", "-c", "echo begun; exec sleep 61.5", timeout=2)
    # The client's own deadline says -1, the worker's signal 137; which comes first is a race.
    assert process.wait() in (-1, 137), process.returncode
    gone = "until ! cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -q '^61.5$'; do sleep 0.1; done"
    same(run(main, gone, timeout=20)[0], 0)

files = main.filesystem
with check("files are written, read, listed, described and removed"):
    content = bytes(at * 7 % 256 for at in range(1_000_000))
    files.write_bytes(content, "/data/a/b.bin")
    same(files.read_bytes("/data/a/b.bin"), content)
    files.write_text("файл\n", "/data/text")
    same(files.read_text("/data/text"), "файл\n")
    same(run(main, "ln -s text /data/link; chmod 750 /data/text")[0], 0)
    same([(entry.name, entry.path) for entry in files.list_files("/data")], [(n, f"/data/{n}") for n in ("a", "link", "text")])
    entry = files.stat("/data/text")
    same((entry.size, entry.mode, entry.permissions, entry.owner, entry.is_file()), (9, 0o750, "rwxr-x---", "root", True))
    assert abs(entry.modified_time - time.time()) < 60, entry
    same(files.stat("/data/link").symlink_target, "text")
    files.make_directory("/data/new/deep")
    same(files.stat("/data/new").is_dir(), True)
    files.remove("/data/new", recursive=True)
    with tempfile.NamedTemporaryFile() as local:
        files.copy_to_local("/data/a/b.bin", local.name)
        with open(local.name, "rb") as copy:
            same(copy.read(), content)
        files.copy_from_local(local.name, "/data/copy")
    same(run(main, "cmp /data/copy /data/a/b.bin")[0], 0)

with check("the file tool's errors are those that the client knows"):
    for action, kind in (
        (lambda: files.read_text("/data/none"), SandboxFilesystemNotFoundError),
        (lambda: files.read_text("/data"), SandboxFilesystemIsADirectoryError),
        (lambda: files.write_text("x", "/data"), SandboxFilesystemIsADirectoryError),
        (lambda: files.write_text("x", "/data/text/below"), SandboxFilesystemNotADirectoryError),
        (lambda: files.list_files("/data/text"), SandboxFilesystemNotADirectoryError),
        (lambda: files.list_files("/none"), SandboxFilesystemNotFoundError),
        (lambda: files.stat("/none"), SandboxFilesystemNotFoundError),
        (lambda: files.make_directory("/data/text"), SandboxFilesystemPathAlreadyExistsError),
        (lambda: files.make_directory("/none/x", create_parents=False), SandboxFilesystemNotFoundError),
        (lambda: files.remove("/data"), SandboxFilesystemDirectoryNotEmptyError),
        (lambda: files.remove("/none"), SandboxFilesystemNotFoundError),
    ):
        with raises(kind):
            action()

with check("files are saved as an image, the sandbox goes on, and others start from it"):
    same(run(main, "echo kept > /made/kept; echo kept > /tmp/kept")[0], 0)
    saved = main.snapshot_filesystem()
    assert saved.object_id.startswith("im-"), saved
    same(main.poll(), None)
    same(run(main, "cat /made/kept"), (0, "kept\n", ""))
    copy = modal.Sandbox.create(app=app, image=saved)
    same(run(copy, "cat /made/kept /tmp/kept; echo $FROM_IMAGE$DEFAULT"), (0, "kept\nkept\n1\n", ""))
    drop(copy)
    by_id = modal.Image.from_id(saved.object_id)
    layered = by_id.run_commands("cat /made/kept > /made/twice")
    copy = modal.Sandbox.create(app=app, image=layered)
    same(run(copy, "cat /made/twice"), (0, "kept\n", ""))
    drop(copy)
    with raises(NotFoundError):
        modal.Sandbox.create(app=app, image=modal.Image.from_id("im-0000000000000000000000"))

with check("sandboxes are found by tags, name and id"):
    others = [modal.Sandbox.create(app=app, image=saved, tags={"run": "py", "attempt": str(at)}) for at in range(12)]
    admin("DELETE", "requests")
    found = list(modal.Sandbox.list(app_id=app.app_id, tags={"run": "py"}))
    same({each.object_id for each in found}, {main.object_id, *(each.object_id for each in others)})
    same(methods().count("SandboxListV2"), 3)
    same([each.object_id for each in modal.Sandbox.list(app_id=app.app_id, tags={"attempt": "5"})], [others[5].object_id])
    for each in others:
        drop(each)
    same(len(list(modal.Sandbox.list(app_id=app.app_id))), 1)
    main.set_tags({"run": "py", "state": "kept"})
    same(main.get_tags(), {"run": "py", "state": "kept"})
    same(modal.Sandbox.from_name("py-bench", "py-main").object_id, main.object_id)
    attached = modal.Sandbox.from_id(main.object_id)
    same((attached.poll(), run(attached, "echo attached")), (None, (0, "attached\n", "")))
    with raises(AlreadyExistsError):
        modal.Sandbox.create(app=app, image=saved, name="py-main")
    with raises(NotFoundError):
        modal.Sandbox.from_name("py-bench", "py-none")
    with raises(NotFoundError):
        modal.Sandbox.from_id("sb-00000000000000000000000000")

with check("a main process has output and input, and its exit code is the sandbox's"):
    sandbox = modal.Sandbox.create("sh", "-c", "read line; echo got $line; echo err >&2; exit 3", app=app, image=plain)
    sandbox.stdin.write("a line\n")
    sandbox.stdin.write_eof()
    sandbox.stdin.drain()
    same((sandbox.stdout.read(), sandbox.stderr.read()), ("got a line\n", "err\n"))
    same(ended(sandbox), 3)

with check("a sandbox ends when its time is over, and when it is idle"):
    short = modal.Sandbox.create("sleep", "60", app=app, image=plain, timeout=2)
    idle = modal.Sandbox.create("sleep", "60", app=app, image=plain, idle_timeout=4)
    same(run(idle, "sleep 5; echo busy"), (0, "busy\n", ""))
    with raises(modal.exception.SandboxTimeoutError):
        short.wait()
    same(short.returncode, 124)
    ended(idle)
    known = {each["id"]: each["status"] for each in admin("GET", "state")["sandboxes"]}
    same(known[idle.object_id], "GENERIC_STATUS_IDLE_TIMEOUT")

with check("a readiness probe is waited for"):
    probe = modal.Probe.with_exec("test", "-e", "/tmp/ready", interval_ms=50)
    sandbox = modal.Sandbox.create("sh", "-c", "sleep 0.5; touch /tmp/ready; sleep 60", app=app, image=plain, readiness_probe=probe)
    sandbox.wait_until_ready(timeout=30)
    same(run(sandbox, "test -e /tmp/ready")[0], 0)
    drop(sandbox)

with check("throttling is waited for, but exhaustion is final"):
    script(fault(f"{CONTROL}SandboxCreateV2", "throttle", 300, times=2))
    begun = time.monotonic()
    sandbox = modal.Sandbox.create(app=app, image=plain)
    assert time.monotonic() - begun >= 0.6
    same(methods().count("SandboxCreateV2"), 3)
    drop(sandbox)
    script(fault(f"{CONTROL}SandboxCreateV2", "status", 8, times=1))
    with raises(ResourceExhaustedError):
        modal.Sandbox.create(app=app, image=plain)

with check("an unavailable control plane is tried again, and then given up"):
    script(fault(f"{CONTROL}SandboxWaitV2", "status", 14, times=2))
    same(main.poll(), None)
    script(fault(f"{CONTROL}SandboxWaitV2", "status", 14))
    with raises(ServiceError):
        main.poll()

with check("a create whose answer is lost makes one sandbox"):
    for lost in (
        {"path": f"{CONTROL}SandboxCreateV2", "times": 1, "effect": {"kind": "lose-response"}},
        fault(f"{CONTROL}SandboxCreateV2", "late-status", 14, times=1),
    ):
        script(lost)
        sandbox = modal.Sandbox.create(app=app, image=plain, tags={"run": "lost"})
        same([each.object_id for each in modal.Sandbox.list(app_id=app.app_id, tags={"run": "lost"})], [sandbox.object_id])
        drop(sandbox)

with check("an expired router token is replaced, and a missing one fetched"):
    script(fault(f"{CONTROL}SandboxCreateV2", "expired-token"))
    sandbox = modal.Sandbox.create(app=app, image=plain)
    same(run(sandbox, "echo on"), (0, "on\n", ""))
    assert "SandboxGetCommandRouterAccess" in methods(), methods()
    drop(sandbox)
    script(fault(f"{CONTROL}SandboxCreateV2", "no-access"))
    sandbox = modal.Sandbox.create(app=app, image=plain)
    same(run(sandbox, "echo on"), (0, "on\n", ""))
    drop(sandbox)

with check("cut streams are taken up where they broke"):
    script(fault(f"{ROUTER}TaskExecStdioRead", "stdio-cut", 40_000, times=4))
    same(run(main, "seq 40000"), (0, "".join(f"{n}\n" for n in range(1, 40_001)), ""))
    script({"path": f"{ROUTER}TaskExecStdioRead", "times": 1, "effect": {"kind": "cut", "after": 50_000, "ending": "close"}})
    same(run(main, "seq 40000")[1][-6:], "40000\n")
    script(fault(f"{ROUTER}TaskExecStdinWriteStream", "stdin-cut", 300_000, times=2))
    files.write_bytes(content, "/data/resumed")
    same(files.read_bytes("/data/resumed"), content)
    assert "TaskExecStdinStatus" in methods(), methods()

with check("a terminated sandbox is gone"):
    drop(main)
    same(main.poll(), 137)
    with raises((NotFoundError, ConflictError)):
        main.exec("true")
    main.terminate()
    same(list(modal.Sandbox.list(app_id=app.app_id)), [])

with check("wrong credentials are refused"):
    stranger = modal.Client.from_credentials("ak-wrong", "as-wrong")
    with raises(AuthError):
        modal.App.lookup("py-bench", client=stranger)

with check("values that the vendor refuses are refused"):
    with raises(InvalidError):
        modal.Sandbox.create(app=app, image=plain, timeout=100_000)

until = time.monotonic() + 20
while admin("GET", "state")["machines"]:
    assert time.monotonic() < until, "a sandbox that has ended still has a machine"
    time.sleep(0.05)
violations = admin("GET", "violations")
same(violations, [])
print(f"{len(passed)} checks passed, no violations")
