// A model of the Vercel AI SDK that answers what `script` holds, and records what it saw.

const USAGE = { inputTokens: 1, outputTokens: 1, totalTokens: 2 };
const COUNTS = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };

/** Stands in for a provider where the lines of a page are run.
 * @type {any} */
export const openai = () => new Scripted();

export class Scripted {
  provider = "scripted";
  modelId = "scripted";
  supportedUrls = {};
  prompts = [];
  script = [];

  /** `version` is that of the interface: v2, v3 or v4. */
  constructor(version = "v4") {
    this.specificationVersion = version;
  }

  /** Returns the words of the newest message of the user that the model saw last. */
  get seen() {
    const newest = this.prompts.at(-1).findLast(({ role }) => role === "user");
    return newest.content.map(({ text }) => text).join("\n");
  }

  #answer(prompt) {
    this.prompts.push(prompt);
    const next = this.script.shift() ?? "Noted.";
    const reason = typeof next === "string" ? "stop" : "tool-calls";
    const call = { type: "tool-call", toolCallId: `c${this.prompts.length}`, toolName: next.tool, input: JSON.stringify(next.input) };
    const finishReason = this.specificationVersion === "v2" ? reason : { unified: reason, raw: reason };
    const usage = this.specificationVersion === "v2" ? USAGE : COUNTS;
    return { part: typeof next === "string" ? { type: "text", text: next } : call, finishReason, usage };
  }

  async doGenerate({ prompt }) {
    const { part, ...end } = this.#answer(prompt);
    return { content: [part], ...end, warnings: [] };
  }

  async doStream({ prompt }) {
    const { part, ...end } = this.#answer(prompt);
    const text = [
      { type: "text-start", id: "t" },
      ...[...(part.text ?? "")].map((delta) => ({ type: "text-delta", id: "t", delta })),
      { type: "text-end", id: "t" },
    ];
    const parts = [{ type: "stream-start", warnings: [] }, ...(part.type === "text" ? text : [part]), { type: "finish", ...end }];
    return { stream: ReadableStream.from(parts) };
  }
}
