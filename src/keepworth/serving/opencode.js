// A plugin of opencode that runs `keepworth hook` at its events. `keepworth hook --install opencode --write` wrote this file.

import { spawn } from "node:child_process";

const COMMAND = ["keepworth", "hook"];

/** @type {import("@opencode-ai/plugin").Plugin} */
export const Keepworth = async ({ client, directory }) => {
  const parents = new Map(); // of a session: the one that it works for as a subagent, or ""
  const notes = new Map(); // of a session: what was recalled when it began, until its first prompt
  const turns = new Map(); // of a session: its newest event, as each begins where the one before ended

  const warn = (message) =>
    client.app.log({ body: { service: "keepworth", level: "warn", message } }).catch(() => {});

  /** Returns what the command shows for an event; "" if it shows nothing, or cannot run. */
  const run = (event) =>
    new Promise((resolve, reject) => {
      const child = spawn(COMMAND[0], COMMAND.slice(1), { cwd: directory, windowsHide: true });
      let printed = "", said = "";
      child.stdout.on("data", (text) => (printed += text));
      child.stderr.on("data", (text) => (said += text));
      child.stdin.on("error", () => {}); // it did not wait for the event
      child.on("error", reject);
      child.on("close", () => {
        if (said) warn(said.trim());
        resolve(printed && JSON.parse(printed).hookSpecificOutput.additionalContext);
      });
      child.stdin.end(JSON.stringify(event));
    }).catch((error) => warn(`${COMMAND[0]} does not run: ${error.message}`).then(() => ""));

  const send = (session, name, fields) => {
    const event = { hook_event_name: name, session_id: session, cwd: directory, ...fields };
    const turn = (turns.get(session) ?? Promise.resolve()).then(() => run(event));
    turns.set(session, turn);
    return turn;
  };

  const parentOf = (session) => {
    if (!parents.has(session)) {
      const asked = client.session.get({ path: { id: session } });
      parents.set(session, asked.then(({ data }) => data?.parentID ?? "", () => ""));
    }
    return parents.get(session);
  };

  /** Returns the session in which the user speaks: what a subagent does belongs to its turn. */
  const rootOf = async (session) => {
    const parent = await parentOf(session);
    return parent ? rootOf(parent) : session;
  };

  return {
    event: async ({ event }) => {
      const { type, properties } = event;
      switch (event.type) {
        case "session.created": {
          const { id, parentID } = event.properties.info;
          parents.set(id, Promise.resolve(parentID ?? ""));
          if (!parentID) notes.set(id, await send(id, type, { properties }));
          break;
        }
        case "message.part.updated": {
          const { part } = event.properties;
          if (part.type !== "tool" || part.state.status !== "error") break;
          await send(await rootOf(part.sessionID), type, { properties });
          break;
        }
        case "session.error": {
          const { sessionID, error } = event.properties;
          if (sessionID && error?.name === "MessageAbortedError") await send(await rootOf(sessionID), type, { properties });
          break;
        }
        case "session.idle":
        case "session.compacted": {
          const { sessionID } = event.properties;
          if (!(await parentOf(sessionID))) await send(sessionID, type, { properties });
          break;
        }
        case "session.deleted": {
          const { id } = event.properties.info;
          if (!(await parentOf(id))) await send(id, type, { properties });
          for (const map of [parents, notes, turns]) map.delete(id);
        }
      }
    },

    "chat.message": async (input, output) => {
      if (await parentOf(input.sessionID)) return;
      const text = await send(input.sessionID, "chat.message", { input, output });
      const block = [notes.get(input.sessionID), text].filter(Boolean).join("\n\n");
      notes.delete(input.sessionID);
      const first = output.parts[0];
      if (!block || !first) return;
      const { id: messageID, sessionID } = output.message;
      // The parts of a message stand in the order of their ids.
      output.parts.unshift({ id: first.id.slice(0, -1), sessionID, messageID, type: "text", text: block, synthetic: true });
    },

    "tool.execute.after": async (input, output) => {
      if (!input.args?.command && !("isError" in output && output.isError)) return; // which says nothing
      const turn = send(await rootOf(input.sessionID), "tool.execute.after", { input, output });
      if (output.metadata?.exit === 0) return; // nothing is recalled then, so that the agent need not wait
      const text = await turn;
      if (text && typeof output.output === "string") output.output += `\n\n${text}`;
    },

    dispose: async () => {
      await Promise.all(turns.values());
    },
  };
};
