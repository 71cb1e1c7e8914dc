// A check of an official client against a running emulator, whose address is in EMULATOR_URL: what the checks of all vendors
// do alike.
import assert from "node:assert/strict";

export const emulator = process.env.EMULATOR_URL;

/** What an admin route of the emulator answers. */
export async function admin(method, path, body) {
  const answer = await fetch(`${emulator}/__emulator/${path}`, {
    method,
    headers: { "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

/** The faults that requests meet from now on. */
export const script = (...rules) => admin("PUT", "faults", { rule: rules });

export let checks = 0;

/** One check: all is well before it, and after it. */
export async function check(name, body) {
  await admin("DELETE", "requests");
  try {
    await body();
  } catch (error) {
    console.error(`FAILED  ${name}`);
    throw error;
  } finally {
    await script();
  }
  checks += 1;
  console.log(`ok  ${name}`);
}
