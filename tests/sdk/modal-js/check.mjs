// The official JavaScript client, unmodified, drives the Modal emulator: the sequences that a benchmark needs, and what the
// client makes of faults.
//
//   EMULATOR_URL=http://127.0.0.1:PORT MODAL_SERVER_URL=.. MODAL_TOKEN_ID=.. MODAL_TOKEN_SECRET=.. node check.mjs
import assert from "node:assert/strict";
import {
  AlreadyExistsError,
  ModalClient,
  NotFoundError,
  Probe,
  SandboxFilesystemIsADirectoryError,
  SandboxFilesystemNotADirectoryError,
  SandboxFilesystemNotFoundError,
} from "modal";
import { admin, check, checks, emulator, script } from "./emulator.mjs";

const control = "/modal.client.ModalClient/";
const router = "/modal.task_command_router.TaskCommandRouter/";
const fault = (path, name, value = 0, rule = {}) => ({ path, effect: { kind: "flag", name, value }, ...rule });
const methods = async () => (await admin("GET", "requests")).map((request) => request.path.split("/").at(-1));

/** What a command writes and exits with. */
async function run(sandbox, text, params = {}) {
  const process = await sandbox.exec(["sh", "-c", text], params);
  const [stdout, stderr, code] = await Promise.all([process.stdout.readText(), process.stderr.readText(), process.wait()]);
  return [code, stdout, stderr];
}
const drop = async (sandbox) => assert.equal(await sandbox.terminate({ wait: true }), 137);
async function ids(listing) {
  const found = [];
  for await (const sandbox of listing) found.push(sandbox.sandboxId);
  return found.sort();
}

const modal = new ModalClient();
let app, image, main, saved;

await check("an app that is missing is not found, and made when asked for", async () => {
  await assert.rejects(modal.apps.fromName("js-missing"), NotFoundError);
  app = await modal.apps.fromName("js-bench", { createIfMissing: true });
  assert.equal((await modal.apps.fromName("js-bench")).appId, app.appId);
});

await check("an image is built layer by layer, and a sandbox starts from it", async () => {
  image = modal.images
    .fromRegistry("debian:bookworm-slim")
    .dockerfileCommands(["ENV FROM_IMAGE=1", "WORKDIR /made", "RUN echo built > file && pwd > where"]);
  await image.build(app);
  main = await modal.sandboxes.create(app, image, {
    command: ["sleep", "infinity"],
    env: { DEFAULT: "1" },
    tags: { run: "js", attempt: "1" },
    name: "js-main",
    timeoutMs: 600_000,
    cpu: 1,
    cpuLimit: 2,
    memoryMiB: 256,
    memoryLimitMiB: 1024,
  });
  assert.equal((await methods()).at(-1), "SandboxCreateV2");
  assert.deepEqual(await run(main, "cat file where; echo $FROM_IMAGE$DEFAULT"), [0, "built\n/made\n11\n", ""]);
});

await check("a failing build says why", async () => {
  await assert.rejects(image.dockerfileCommands(["RUN echo seen; exit 3"]).build(app), /exit code: 3/);
});

await check("a command has output, error output and an exit code", async () => {
  assert.deepEqual(await run(main, "echo out; echo err >&2; exit 7"), [7, "out\n", "err\n"]);
  assert.equal((await run(main, "kill -9 $$"))[0], 137);
  assert.deepEqual(await run(main, "echo $OWN; pwd", { env: { OWN: "2" }, workdir: "/tmp" }), [0, "2\n/tmp\n", ""]);
  const binary = await main.exec(["head", "-c", "300000", "/dev/zero"], { mode: "binary" });
  assert.deepEqual(Buffer.from(await binary.stdout.readBytes()), Buffer.alloc(300_000));
  assert.equal(await (await main.exec(["/no/such/program"])).wait(), 127);
});

await check("input reaches a command, and its end too", async () => {
  const process = await main.exec(["sh", "-c", "read first; cat; echo $first done"]);
  await process.stdin.writeText("one\ntwo\n");
  await process.stdin.close();
  assert.equal(await process.stdout.readText(), "two\none done\n");
  assert.equal(await process.wait(), 0);
});

await check("a command's time limit ends it", async () => {
  const process = await main.exec(["sleep", "60"], { timeoutMs: 1000 });
  // Either the worker's signal or the client's own deadline is first.
  assert.match(String(await process.wait().catch((error) => error.message)), /137|[Dd]eadline/);
});

await check("files are written, read, listed, described and removed", async () => {
  const files = main.filesystem;
  const content = Buffer.from(Array.from({ length: 600_000 }, (_, at) => (at * 7) % 256));
  await files.writeBytes(content, "/data/a/b.bin");
  assert.deepEqual(Buffer.from(await files.readBytes("/data/a/b.bin")), content);
  await files.writeText("файл\n", "/data/text");
  assert.equal(await files.readText("/data/text"), "файл\n");
  await run(main, "ln -s text /data/link; chmod 750 /data/text");
  assert.deepEqual((await files.listFiles("/data")).map(({ name, type }) => [name, type]), [
    ["a", "directory"],
    ["link", "symlink"],
    ["text", "file"],
  ]);
  const entry = await files.stat("/data/text");
  assert.deepEqual([entry.size, entry.mode, entry.permissions], [9, 0o750, "rwxr-x---"]);
  await files.makeDirectory("/data/new/deep");
  await files.remove("/data/new", { recursive: true });
  await assert.rejects(files.readText("/data/new"), SandboxFilesystemNotFoundError);
  await assert.rejects(files.readText("/data"), SandboxFilesystemIsADirectoryError);
  await assert.rejects(files.listFiles("/data/text"), SandboxFilesystemNotADirectoryError);
});

await check("files are saved as an image, the sandbox goes on, and others start from it", async () => {
  await run(main, "echo kept > /made/kept");
  saved = await main.snapshotFilesystem();
  assert.deepEqual(await run(main, "cat /made/kept"), [0, "kept\n", ""]);
  const copy = await modal.sandboxes.create(app, await modal.images.fromId(saved.imageId));
  assert.deepEqual(await run(copy, "cat /made/kept; echo $DEFAULT"), [0, "kept\n\n", ""]);
  await drop(copy);
});

await check("sandboxes are found by tags, name and id", async () => {
  const other = await modal.sandboxes.create(app, saved, { tags: { run: "js", attempt: "2" } });
  const both = [main.sandboxId, other.sandboxId].sort();
  assert.deepEqual(await ids(modal.sandboxes.experimentalList({ appId: app.appId, tags: { run: "js" } })), both);
  assert.deepEqual(await ids(modal.sandboxes.experimentalList({ appId: app.appId, tags: { attempt: "2" } })), [other.sandboxId]);
  await main.setTags({ run: "js", state: "kept" });
  assert.deepEqual(await main.getTags(), { run: "js", state: "kept" });
  assert.equal((await modal.sandboxes.experimentalFromName("js-bench", "js-main")).sandboxId, main.sandboxId);
  const attached = await modal.sandboxes.fromId(main.sandboxId);
  assert.deepEqual(await run(attached, "echo attached"), [0, "attached\n", ""]);
  await assert.rejects(modal.sandboxes.create(app, saved, { name: "js-main" }), AlreadyExistsError);
  await drop(other);
});

await check("a main process has output, and its exit code is the sandbox's", async () => {
  const sandbox = await modal.sandboxes.create(app, saved, { command: ["sh", "-c", "echo out; echo err >&2; exit 3"] });
  assert.deepEqual(await Promise.all([sandbox.stdout.readText(), sandbox.stderr.readText()]), ["out\n", "err\n"]);
  assert.equal(await sandbox.wait(), 3);
});

await check("a sandbox ends when its time is over", async () => {
  const sandbox = await modal.sandboxes.create(app, saved, { timeoutMs: 1000 });
  assert.equal(await sandbox.wait(), 124);
});

await check("a readiness probe is waited for", async () => {
  const sandbox = await modal.sandboxes.create(app, saved, {
    command: ["sh", "-c", "sleep 0.5; touch /tmp/ready; sleep 60"],
    readinessProbe: Probe.withExec(["test", "-e", "/tmp/ready"], { intervalMs: 50 }),
  });
  await sandbox.waitUntilReady(30_000);
  await drop(sandbox);
});

await check("faults that pass are got over", async () => {
  await script(fault(`${control}SandboxCreateV2`, "throttle", 200, { times: 2 }));
  await drop(await modal.sandboxes.create(app, saved));
  await script(fault(`${control}SandboxCreateV2`, "expired-token"));
  const sandbox = await modal.sandboxes.create(app, saved);
  assert.deepEqual(await run(sandbox, "echo on"), [0, "on\n", ""]);
  assert.ok((await methods()).includes("SandboxGetCommandRouterAccess"));
  await drop(sandbox);
  await script(fault(`${router}TaskExecStdioRead`, "stdio-cut", 40_000, { times: 4 }));
  assert.equal((await run(main, "seq 40000"))[1].length, 228_894);
});

await check("a create whose answer is lost makes one sandbox", async () => {
  await script({ path: `${control}SandboxCreateV2`, times: 1, effect: { kind: "lose-response" } });
  const sandbox = await modal.sandboxes.create(app, saved, { tags: { run: "lost" } });
  assert.deepEqual(await ids(modal.sandboxes.experimentalList({ appId: app.appId, tags: { run: "lost" } })), [sandbox.sandboxId]);
  await drop(sandbox);
});

await check("a terminated sandbox is gone", async () => {
  await drop(main);
  assert.equal(await main.poll(), 137);
  const found = await ids(modal.sandboxes.experimentalList({ appId: app.appId }));
  assert.deepEqual(found, []);
});

modal.close();
for (const until = Date.now() + 20_000; (await admin("GET", "state")).machines.length > 0; ) {
  assert.ok(Date.now() < until, "a sandbox that has ended still has a machine");
}
assert.deepEqual(await admin("GET", "violations"), []);
console.log(`${checks} checks passed, no violations`);
