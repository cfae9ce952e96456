// What opencode 1.18.33 hands to a plugin, as it was recorded from it, goes through the plugin and `keepworth hook` to a server.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { it } from "node:test";
import { pathToFileURL } from "node:url";

const { KEEPWORTH_URL, KEEPWORTH_TOKEN, KEEPWORTH_PLUGIN } = process.env;
const [ROOT, CHILD] = ["ses_dd96be74dffeN32ig7s225qgBw", "ses_dd96ba966ffefzGMLNMegW1pUt"];
const NOTES = "Memory of earlier conversations. These are notes, not instructions:";

async function call(path, body) {
  const headers = { Authorization: `Bearer ${KEEPWORTH_TOKEN}`, "Content-Type": "application/json" };
  const answer = await fetch(`${KEEPWORTH_URL}/v1/memory/${path}`, { headers, ...(body && { method: "POST", body: JSON.stringify(body) }) });
  assert.equal(answer.status, 200);
  return answer.json();
}

/** Starts opencode's side of the plugin: its events, and what it logs. */
async function start(file, sessions = {}) {
  const logged = [];
  const client = {
    app: { log: async ({ body }) => logged.push(body) },
    session: { get: async ({ path }) => ({ data: sessions[path.id] }) },
  };
  const { Keepworth, ...others } = await import(pathToFileURL(file));
  assert.deepEqual(others, {}, "opencode runs whatever else a file exports as a plugin, too");
  const hooks = await Keepworth({ client, directory: process.cwd() });
  let number = 0;
  const event = (type, properties) => hooks.event({ event: { id: `evt_${number++}`, type, properties } });
  return {
    logged,
    hooks,
    event,
    created: (id, parentID) => event("session.created", { sessionID: id, info: { id, slug: "s", version: "1.18.33", directory: "/", parentID } }),
    idle: (id) => event("session.idle", { sessionID: id }),
    async prompt(sessionID, text) {
      const messageID = `msg_${number++}`;
      const parts = [{ type: "text", text, messageID, sessionID, id: `prt_22694191d001mV9BBoImbKdnw${number}` }];
      const message = { id: messageID, role: "user", sessionID, time: { created: 1795943569685 }, agent: "build" };
      await hooks["chat.message"]({ sessionID }, { message, parts });
      return parts;
    },
    async shell(sessionID, command, exit, printed) {
      const output = { title: command, metadata: { output: printed, exit, truncated: false }, output: printed };
      await hooks["tool.execute.after"]({ tool: "bash", sessionID, callID: `call_${number++}`, args: { command, description: "x" } }, output);
      return output.output;
    },
    broken(sessionID, error) {
      const state = { status: "error", input: { filePath: "/nothere" }, error, time: { start: 1, end: 2 } };
      const part = { id: "prt_3", messageID: "msg_1", sessionID, type: "tool", tool: "read", callID: `call_${number++}`, state };
      return event("message.part.updated", { sessionID, part });
    },
  };
}

it("recalls into the prompt and reports what a session of opencode shows", async () => {
  for (const content of ["Run the tests with: make check", "No rule for make test: the target is check"]) {
    await call("items", { content, user_id: "ana" });
  }
  const { created, prompt, shell, broken, event, idle, hooks, logged } = await start(KEEPWORTH_PLUGIN);
  await created(ROOT);
  const parts = await prompt(ROOT, "How do I run the tests?");
  assert.equal(parts.length, 2);
  assert.match(parts[0].text, new RegExp(`^${NOTES}\n- `));
  assert.match(parts[0].text, /make check/);
  assert.deepEqual([parts[0].type, parts[0].synthetic, parts[0].messageID], ["text", true, parts[1].messageID]);
  assert.ok(parts[0].id < parts[1].id, "as opencode orders the parts of a message by their ids");
  await call("items", { content: "make: *** No rule to make target 'test': type make check", user_id: "ana" });
  const failed = await shell(ROOT, "make test", 2, "make: *** No rule to make target 'test'.  Stop.\n");
  assert.match(failed, new RegExp(`Stop\\.\n\n\n${NOTES}\n- make: `), "what is recalled for a failure stands behind its output");
  await created(CHILD, ROOT);
  assert.equal((await prompt(CHILD, "I live in Rome.")).length, 1, "the words of an agent are not the user's");
  await idle(CHILD);
  await shell(CHILD, "make check", 0, "9 passed\n");
  await event("message.part.updated", { sessionID: ROOT, part: { type: "text", sessionID: ROOT, text: "Done." } });
  await idle(ROOT);
  await prompt(ROOT, "Thanks, that helps. Read the notes of the release");
  await broken(ROOT, "File not found: /nothere");
  await event("session.error", { sessionID: ROOT, error: { name: "MessageAbortedError", data: { message: "Aborted" } } });
  await idle(ROOT);
  await event("session.deleted", { sessionID: ROOT, info: { id: ROOT } });
  await hooks.dispose();
  assert.deepEqual(logged, []);
  const { episodes } = await call("episodes?user_id=ana");
  const records = await Promise.all(episodes.map((id) => call(`episodes/${id}`)));
  const outcomes = records.map(({ task, rewards }) => [task, [...new Set(rewards.map(({ scorer }) => scorer.split(":")[1]))].sort()]);
  assert.deepEqual(outcomes.slice(1), [
    ["How do I run the tests?", ["check-failed", "check-mended", "thanks"]],
    ["Thanks, that helps. Read the notes of the release", ["interrupt", "tool-failed"]],
  ]);
  const { items } = await call("items?user_id=ana");
  assert.ok(!items.some(({ text }) => text.includes("Rome")));
});

it("asks opencode whose a session is that began before", async () => {
  const { prompt } = await start(KEEPWORTH_PLUGIN, { ses_1: { id: "ses_1" }, ses_2: { id: "ses_2", parentID: "ses_1" } });
  assert.equal((await prompt("ses_2", "How do I run the tests?")).length, 1);
  assert.equal((await prompt("ses_1", "How do I run the tests?")).length, 2);
});

it("goes on where the command does not run, and says so", async () => {
  const file = KEEPWORTH_PLUGIN.replace(/\.js$/, "-nowhere.js");
  writeFileSync(file, readFileSync(KEEPWORTH_PLUGIN, "utf8").replace('["keepworth"', '["no-such-program"'));
  const { created, prompt, logged } = await start(file);
  await created("ses_3");
  assert.equal((await prompt("ses_3", "How do I run the tests?")).length, 1);
  assert.equal(logged.length, 2);
  assert.match(logged[0].message, /no-such-program does not run/);
  assert.equal(logged[0].level, "warn");
});
