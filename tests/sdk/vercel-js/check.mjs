// The official JavaScript client, unmodified, drives the Vercel emulator. Every sequence of the protocol that a benchmark
// needs, then every fault of the script and what the client makes of it.
//
//   EMULATOR_URL=http://127.0.0.1:PORT VERCEL_TOKEN=.. VERCEL_TEAM_ID=.. VERCEL_PROJECT_ID=.. node check.mjs
import assert from "node:assert/strict";
import { Sandbox, Snapshot } from "@vercel/sandbox";
import { admin, check, checks, emulator, script } from "./emulator.mjs";

const credentials = {
  token: process.env.VERCEL_TOKEN,
  teamId: process.env.VERCEL_TEAM_ID,
  projectId: process.env.VERCEL_PROJECT_ID,
  // The client has no setting for its address; it takes a `fetch`.
  fetch: (url, init) => fetch(String(url).replace("https://vercel.com/api", `${emulator}/api`), init),
};
const requests = async (method, end) =>
  (await admin("GET", "requests")).filter((request) => request.method === method && request.path.endsWith(end));

/** The error of a call that must fail. */
async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("succeeded");
}
async function refused(promise, status, code) {
  const error = await failure(promise);
  assert.equal(error.name === "TypeError", false, error.stack);
  assert.equal(error.response?.status, status, error.stack);
  if (code) assert.equal(error.json?.error?.code, code);
  return error;
}

const sandboxes = new Set();
async function create(options = {}) {
  const sandbox = await Sandbox.create({ persistent: false, timeout: 600_000, ...options, ...credentials });
  sandboxes.add(sandbox);
  return sandbox;
}
async function remove(sandbox) {
  sandboxes.delete(sandbox);
  await sandbox.delete({ deleteOrphanSnapshots: true });
}

const main = await create({
  name: "js-main",
  resources: { vcpus: 4 },
  networkPolicy: "allow-all",
  env: { DEFAULT: "1" },
  tags: { run: "js" },
});

await check("create answers with what was asked for", async () => {
  assert.equal(main.name, "js-main");
  assert.equal(main.status, "running");
  assert.equal(main.persistent, false);
  assert.equal(main.vcpus, 4);
  assert.equal(main.memory, 8192);
  assert.equal(main.timeout, 600_000);
  assert.equal(main.networkPolicy, "allow-all");
  assert.deepEqual(main.tags, { run: "js" });
  assert.match(main.currentSession().sessionId, /^sbx_/);
  assert.equal(main.currentSession().cwd, "/vercel");
  assert.match(main.image, /^vercel\/sandbox\/universal@sha256:/);
});

await check("a name is taken once", async () => {
  await refused(create({ name: "js-main" }), 409, "conflict");
});

await check("a runtime goes to the old route and has the old user", async () => {
  const sandbox = await create({ name: "js-runtime", runtime: "node24" });
  assert.equal(sandbox.runtime, "node24");
  assert.equal(sandbox.currentSession().cwd, "/vercel/sandbox");
  const who = await sandbox.runCommand("sh", ["-c", "id -un; pwd"]);
  assert.equal(await who.stdout(), "vercel-sandbox\n/vercel/sandbox\n");
  await remove(sandbox);
});

await check("files are written with their modes and read back", async () => {
  const binary = Buffer.from(Array.from({ length: 70_000 }, (_, at) => (at * 7) % 256));
  const long = `${"long-directory-name/".repeat(9)}файл.txt`;
  await main.writeFiles([
    { path: "a.txt", content: "relative" },
    { path: "/vercel/tests/run.sh", content: "#!/bin/sh\necho ran", mode: 0o755 },
    { path: "/tmp/binary", content: binary },
    { path: long, content: "long" },
  ]);
  assert.equal((await main.readFileToBuffer({ path: "a.txt" })).toString(), "relative");
  assert.equal((await main.readFileToBuffer({ path: "run.sh", cwd: "/vercel/tests" })).toString(), "#!/bin/sh\necho ran");
  assert.deepEqual(await main.readFileToBuffer({ path: "/tmp/binary" }), binary);
  assert.equal((await main.readFileToBuffer({ path: long })).toString(), "long");
  assert.equal(await main.readFileToBuffer({ path: "missing" }), null);
  const ran = await main.runCommand("/vercel/tests/run.sh");
  assert.equal(await ran.stdout(), "ran\n");
});

await check("the file routes are those of the default user", async () => {
  await refused(main.writeFiles([{ path: "/root-owned/x", content: "x" }]), 400, "file_error");
  await refused(main.readFileToBuffer({ path: "/vercel" }), 400);
});

await check("a directory is made once, with a parent", async () => {
  await main.mkDir("directory");
  const listed = await main.runCommand("ls", ["-d", "/vercel/directory"]);
  assert.equal(listed.exitCode, 0);
  await refused(main.mkDir("directory"), 400, "file_error");
  await refused(main.mkDir("no/parent"), 400, "file_error");
});

await check("a command gets directory, environment and user, and keeps its streams apart", async () => {
  const command = await main.runCommand({
    cmd: "sh",
    args: ["-c", 'echo "$DEFAULT $OWN $(pwd) $(id -u)"; echo err >&2; exit 3'],
    cwd: "/tmp",
    env: { OWN: "2" },
    sudo: true,
  });
  assert.equal(command.exitCode, 3);
  assert.equal(await command.stdout(), "1 2 /tmp 0\n");
  assert.equal(await command.stderr(), "err\n");
  const user = await main.getDefaultUser();
  assert.deepEqual(user, { username: "ubuntu", group: "ubuntu" });
});

await check("a detached command is followed, waited for, found and listed", async () => {
  const command = await main.runCommand({ cmd: "sh", args: ["-c", "echo one; sleep 0.3; echo two >&2; exit 7"], detached: true });
  assert.equal(command.exitCode, null);
  const lines = [];
  for await (const line of command.logs()) lines.push(`${line.stream} ${line.data}`);
  assert.deepEqual(lines, ["stdout one\n", "stderr two\n"]);
  const again = [];
  for await (const line of command.logs()) again.push(`${line.stream} ${line.data}`);
  assert.deepEqual(again, lines, "logs are replayed");
  const finished = await command.wait();
  assert.equal(finished.exitCode, 7);
  const found = await main.getCommand(command.cmdId);
  assert.equal(found.exitCode, 7);
  assert.equal(await found.output("both"), "one\ntwo\n");
  await refused(main.getCommand("cmd_unknown"), 404, "not_found");
});

await check("a limit kills a command", async () => {
  const slow = await main.runCommand({ cmd: "sleep", args: ["30"], timeoutMs: 300 });
  assert.equal(slow.exitCode, 137);
  assert.ok(slow.durationMs >= 300 && slow.durationMs < 10_000);
  const detached = await main.runCommand({ cmd: "sleep", args: ["30"], timeoutMs: 300, detached: true });
  assert.equal((await detached.wait()).exitCode, 137);
});

await check("signals arrive", async () => {
  const trap = 'trap "echo got; exit 5" TERM; echo up; while :; do sleep 0.05; done';
  const command = await main.runCommand({ cmd: "sh", args: ["-c", trap], detached: true });
  for await (const _ of command.logs()) break;
  await command.kill("SIGTERM");
  assert.equal((await command.wait()).exitCode, 5);
  const rooted = await main.runCommand({ cmd: "sleep", args: ["30"], sudo: true, detached: true });
  await rooted.kill("SIGINT");
  assert.equal((await rooted.wait()).exitCode, 130);
  const killed = await main.runCommand({ cmd: "sleep", args: ["30"], detached: true });
  await killed.kill("SIGKILL");
  assert.equal((await killed.wait()).exitCode, 137);
});

await check("another user is made and used", async () => {
  const user = await main.createUser("agent");
  await user.writeFiles([{ path: "note.txt", content: "mine" }]);
  const who = await user.runCommand({ cmd: "sh", args: ["-c", "id -un; pwd; cat note.txt"], env: { A: "b" } });
  assert.equal(await who.stdout(), "agent\n/home/agent\nmine");
});

await check("a sandbox without network reaches nothing", async () => {
  const sandbox = await create({ name: "js-offline", networkPolicy: "deny-all" });
  assert.equal(sandbox.networkPolicy, "deny-all");
  const interfaces = await sandbox.runCommand("sh", ["-c", "tail -n +3 /proc/net/dev | cut -d: -f1"]);
  assert.equal((await interfaces.stdout()).trim(), "lo");
  await remove(sandbox);
});

await check("network policies are shown in the client's own form", async () => {
  const rules = { allow: { "*": [], "a.com": [{ transform: [{ headers: { "x-key": "v" } }] }] }, subnets: { deny: ["10.0.0.0/8"] } };
  const updated = await main.updateNetworkPolicy(rules);
  assert.deepEqual(Object.keys(updated.allow), ["*", "a.com"]);
  assert.deepEqual(updated.subnets, { deny: ["10.0.0.0/8"] });
  assert.equal(await main.updateNetworkPolicy("allow-all"), "allow-all");
});

await check("time is extended, and settings change", async () => {
  const before = main.currentSession().timeout;
  await main.extendTimeout(60_000);
  assert.equal(main.currentSession().timeout, before + 60_000);
  await main.update({ timeout: 900_000, tags: { run: "js", more: "1" }, ports: [3000] });
  assert.equal(main.timeout, 900_000);
  assert.equal(main.currentSession().timeout, 900_000);
  assert.match(main.domain(3000), /^https:\/\/.*\.vercel\.run$/);
  await refused(main.extendTimeout(1), 400, "bad_request");
});

await check("lists have pages, a tag, a prefix", async () => {
  const more = await Promise.all([1, 2, 3, 4].map((at) => create({ name: `js-list-${at}`, tags: { group: "list" } })));
  const page = await Sandbox.list({ limit: 2, sortBy: "name", sortOrder: "asc", namePrefix: "js-list-", ...credentials });
  assert.equal(page.pagination.count, 2);
  const names = [];
  for await (const sandbox of page) names.push(sandbox.name);
  assert.deepEqual(names, ["js-list-1", "js-list-2", "js-list-3", "js-list-4"]);
  const tagged = await Sandbox.list({ tags: { group: "list" }, sortBy: "createdAt", limit: 10, ...credentials });
  assert.equal(tagged.sandboxes.length, 4);
  assert.equal(tagged.pagination.next, null);
  await Promise.all(more.map(remove));
  assert.deepEqual((await Sandbox.list({ tags: { group: "list" }, ...credentials })).sandboxes, []);
});

await check("a snapshot ends its session and starts others", async () => {
  const source = await create({ name: "js-source", env: { ONLY: "source" } });
  await source.runCommand({ cmd: "sh", args: ["-c", "echo kept > /tmp/kept; echo root > /opt/root"], sudo: true });
  const snapshot = await source.snapshot({ expiration: 86_400_000 });
  assert.equal(snapshot.status, "created");
  assert.ok(snapshot.expiresAt.getTime() > Date.now());
  assert.equal(source.status, "stopped");
  const warm = await create({ name: "js-warm", source: { type: "snapshot", snapshotId: snapshot.snapshotId } });
  assert.equal(warm.currentSession().sourceSnapshotId, snapshot.snapshotId);
  const kept = await warm.runCommand("sh", ["-c", "cat /tmp/kept /opt/root; id -un; pwd; echo $ONLY"]);
  assert.equal(await kept.stdout(), "kept\nroot\nubuntu\n/vercel\n\n");
  const listed = await Snapshot.list({ name: "js-source", ...credentials });
  assert.deepEqual(listed.snapshots.map((one) => one.id), [snapshot.snapshotId]);
  const found = await Snapshot.get({ snapshotId: snapshot.snapshotId, ...credentials });
  await found.delete();
  assert.equal(found.status, "deleted");
  await refused(Snapshot.get({ snapshotId: snapshot.snapshotId, ...credentials }), 404);
  const gone = create({ source: { type: "snapshot", snapshotId: snapshot.snapshotId } });
  await refused(gone, 410, "snapshot_not_found");
  await remove(warm);
  await remove(source);
});

await check("a persistent sandbox is saved when it stops, resumed, and forked", async () => {
  const sandbox = await create({ name: "js-persistent", persistent: true, env: { KEPT: "env" } });
  await sandbox.writeFiles([{ path: "state", content: "saved" }]);
  const stopped = await sandbox.stop();
  assert.equal(stopped.status, "stopped");
  assert.equal(stopped.snapshot.creationMethod, "automatic");
  assert.equal(typeof stopped.activeCpuDurationMs, "number");
  assert.ok(stopped.networkTransfer.ingress > 0);
  const before = sandbox.currentSession().sessionId;
  // The client meets 410, asks for a new session, and repeats the command there.
  assert.equal(await (await sandbox.runCommand("cat", ["state"])).stdout(), "saved");
  assert.notEqual(sandbox.currentSession().sessionId, before);
  const fork = await Sandbox.fork({ sourceSandbox: "js-persistent", name: "js-fork", ...credentials });
  sandboxes.add(fork);
  assert.equal(await (await fork.runCommand("sh", ["-c", "cat state; echo $KEPT"])).stdout(), "savedenv\n");
  const sessions = await sandbox.listSessions();
  assert.equal(sessions.sessions.length, 2);
  await remove(fork);
  await remove(sandbox);
});

await check("a sandbox is got by name, made if it is not there, and gone when deleted", async () => {
  const options = { name: "js-get", persistent: false, ...credentials };
  await refused(Sandbox.get({ ...options }), 404, "not_found");
  const made = await Sandbox.getOrCreate(options);
  const got = await Sandbox.get(options);
  assert.equal(got.currentSession().sessionId, made.currentSession().sessionId);
  await made.delete();
  await refused(made.delete(), 404, "not_found");
});

await check("wrong credentials are refused", async () => {
  const wrong = { ...credentials, token: "wrong" };
  await refused(Sandbox.create(wrong), 401);
  await refused(Sandbox.create({ ...credentials, teamId: "team_other" }), 403);
  await refused(Sandbox.create({ ...credentials, projectId: "prj_other" }), 403);
});

await check("wrong values are refused", async () => {
  await refused(create({ resources: { vcpus: 3 } }), 400, "bad_request");
  await refused(create({ runtime: "node1" }), 400, "bad_request");
  await refused(create({ image: "python:3.11-slim" }), 404, "not_found");
  await refused(create({ ports: Array.from({ length: 16 }, (_, at) => at + 1) }), 400, "bad_request");
});

// ---- faults ----

const anyCreate = { method: "POST", path: "/api/v3/sandboxes" };
const exec = { method: "POST", path: "/api/v2/sandboxes/sessions/*/cmd" };
const flag = (name, value = 0) => ({ kind: "flag", name, value });
const error = (status, code, headers = {}) => ({
  kind: "answer",
  status,
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify({ error: { code, message: code } }),
});
const echo = () => main.runCommand("sh", ["-c", "echo a; sleep 0.2; echo b"]);

await check("fault: 500 on create is tried three times", async () => {
  await script({ ...anyCreate, effect: error(500, "internal") });
  await refused(create(), 500);
  assert.equal((await requests("POST", "/v3/sandboxes")).length, 3);
});

await check("fault: a reset connection on create is tried three times", async () => {
  await script({ ...anyCreate, effect: { kind: "reset" } });
  assert.match((await failure(create())).message, /fetch failed/);
  assert.equal((await requests("POST", "/v3/sandboxes")).length, 3);
});

await check("fault: a create whose answer is lost leaves a sandbox that is found by name", async () => {
  await script({ ...anyCreate, times: 1, effect: { kind: "lose-response" } });
  await refused(create({ name: "js-lost" }), 409, "conflict");
  await remove(await Sandbox.get({ name: "js-lost", resume: false, ...credentials }));
});

await check("fault: 429 is waited for if it is short, and reported if it is long", async () => {
  await script({ ...anyCreate, times: 1, effect: error(429, "rate_limited", { "retry-after": "1" }) });
  await remove(await create());
  await script({ ...anyCreate, effect: error(429, "rate_limited", { "retry-after": "25" }) });
  await admin("DELETE", "requests");
  await refused(create(), 429);
  assert.equal((await requests("POST", "/v3/sandboxes")).length, 1);
});

await check("fault: a pending session is returned as it is", async () => {
  await script({ ...anyCreate, effect: flag("pending", 400) });
  const sandbox = await create({ name: "js-pending" });
  assert.equal(sandbox.status, "pending");
  let again;
  do {
    await new Promise((done) => setTimeout(done, 50));
    again = await Sandbox.get({ name: "js-pending", resume: false, ...credentials });
  } while (again.status === "pending");
  assert.equal(again.status, "running");
  await remove(sandbox);
});

await check("fault: 503 on a command repeats the command", async () => {
  await script({ ...exec, effect: error(503, "unavailable") });
  await refused(echo(), 503);
  assert.equal((await requests("POST", "/cmd")).length, 3);
});

await check("fault: a stopping sandbox is resumed and the command repeated once", async () => {
  await script({ ...exec, effect: error(422, "sandbox_stopping") });
  await refused(echo(), 422, "sandbox_stopping");
  assert.equal((await requests("POST", "/cmd")).length, 2);
  assert.equal((await requests("GET", "/v2/sandboxes/js-main")).length, 1);
});

await check("fault: 400 on a command is final", async () => {
  await script({ ...exec, effect: error(400, "bad_request") });
  await refused(echo(), 400);
  assert.equal((await requests("POST", "/cmd")).length, 1);
});

await check("fault: streams that break", async () => {
  await script({ ...exec, effect: flag("stream-error", 1) });
  assert.equal((await failure(echo())).code, "sandbox_stream_closed");
  await script({ ...exec, effect: flag("early-end") });
  assert.equal((await failure(echo())).code, "stream_ended_early");
  await script({ ...exec, effect: { kind: "cut", after: 300, ending: "close" } });
  assert.match((await failure(echo())).message, /terminated/);
  await script({ ...exec, effect: flag("charset") });
  assert.match((await failure(echo())).message, /Expected a stream/);
  await script({ ...exec, effect: flag("unknown-stream") });
  assert.equal((await failure(echo())).name, "ZodError");
});

await check("fault: streams that differ and are accepted", async () => {
  await script({ ...exec, effect: flag("no-final-newline") });
  assert.equal(await (await echo()).stdout(), "a\nb\n");
  await script({ ...exec, effect: flag("extra-keys") });
  assert.equal(await (await echo()).stdout(), "a\nb\n");
});

await check("fault: a file route that answers with JSON", async () => {
  await script({ path: "/api/v2/sandboxes/sessions/*/fs/read", effect: flag("read-json") });
  assert.match((await failure(main.readFileToBuffer({ path: "a.txt" }))).message, /Unexpected response/);
});

await check("fault: answers of the wrong form are refused", async () => {
  for (const name of ["unknown-status", "null-started-at", "echo-policy", "no-routes"]) {
    await script({ path: "/api/v2/sandboxes/js-main", effect: flag(name) });
    const answer = await failure(Sandbox.get({ name: "js-main", resume: false, ...credentials }));
    assert.match(answer.message, /not valid/, name);
  }
});

await check("stop says what was used, and a stopped session says that it is gone", async () => {
  const stopped = await main.stop();
  assert.equal(stopped.status, "stopped");
  assert.ok(stopped.activeCpuDurationMs > 0);
  assert.ok(stopped.networkTransfer.egress >= 70_000);
  assert.equal(stopped.snapshot, undefined);
  await main.stop();
});

await Promise.all([...sandboxes].map(remove));
await check("nothing is left, and nothing was against the protocol", async () => {
  const state = await admin("GET", "state");
  assert.deepEqual([state.sandboxes, state.snapshots, state.machines], [[], [], []]);
  assert.deepEqual(await admin("GET", "violations"), []);
});
console.log(`@vercel/sandbox: ${checks} checks passed`);
