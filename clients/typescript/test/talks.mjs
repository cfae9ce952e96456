// Conversations with agents of the frameworks: `say` sends a message, which the model answers so, and returns what the agent answered.

import { Agent } from "@mastra/core/agent";
import { InMemoryStore } from "@mastra/core/storage";
import { createTool } from "@mastra/core/tools";
import * as ai7 from "ai";
import * as ai5 from "ai-5";
import * as ai6 from "ai-6";
import { keepworthMiddleware } from "keepworth-client/ai-sdk";
import { KeepworthMemory } from "keepworth-client/mastra";
import { z } from "zod";

import { Scripted } from "./scripted.mjs";

const SHELL = { description: "Runs a command.", inputSchema: z.object({ command: z.string() }) };
const STRICT = {
  warn(message) {
    throw new Error(message);
  },
};
let threads = 0;

/** A tool that runs commands: "deploy" throws, and all else is done. */
async function run({ command }) {
  if (command === "deploy") throw new Error("no such target");
  return { stdout: command, exitCode: command.startsWith("make") ? 2 : 0 };
}

function ofAiSdk(ai, version, streams) {
  return class {
    model = new Scripted(version);
    messages = [];

    constructor(memory, options = {}) {
      this.agent = ai.wrapLanguageModel({ model: this.model, middleware: keepworthMiddleware(memory, { ...STRICT, ...options }) });
    }

    async say(message, ...script) {
      this.model.script = script;
      this.messages.push({ role: "user", content: message });
      const tools = { shell: ai.tool({ ...SHELL, execute: run }) };
      const call = { model: this.agent, messages: this.messages, tools, stopWhen: ai.stepCountIs(5), maxRetries: 0 };
      let text;
      if (streams) {
        const result = ai.streamText({ ...call, onError: () => {} });
        text = await result.text;
        this.messages.push(...(await result.response).messages);
      } else {
        const result = await ai.generateText(call);
        text = result.text;
        this.messages.push(...result.response.messages);
        this.episode = result.providerMetadata?.keepworth?.episode;
      }
      return text;
    }
  };
}

function ofMastra(streams) {
  return class {
    model = new Scripted("v2");

    constructor(memory, { userId = "", ...options } = {}) {
      this.place = { thread: `thread-${threads++}`, resource: userId || "nobody" };
      this.memory = new KeepworthMemory(memory, { ...STRICT, ...options, storage: new InMemoryStore() });
      const tools = { shell: createTool({ id: "shell", ...SHELL, execute: run }) };
      this.agent = new Agent({ id: "a", name: "A", instructions: "Be brief.", model: this.model, memory: this.memory, tools });
    }

    async say(message, ...script) {
      this.model.script = script;
      const result = await this.agent[streams ? "stream" : "generate"](message, { memory: this.place });
      return result.text;
    }
  };
}

export const TALKS = {
  "ai 5": ofAiSdk(ai5, "v2", false),
  "ai 6": ofAiSdk(ai6, "v3", false),
  "ai 7": ofAiSdk(ai7, "v4", false),
  "ai 7, streamed": ofAiSdk(ai7, "v4", true),
  mastra: ofMastra(false),
  "mastra, streamed": ofMastra(true),
};
