/**
 * A middleware of the Vercel AI SDK over a memory.
 *
 *     import { wrapLanguageModel } from "ai";
 *     import { Memory } from "keepworth-client";
 *     import { keepworthMiddleware } from "keepworth-client/ai-sdk";
 *
 *     const middleware = keepworthMiddleware(new Memory("http://127.0.0.1:8000", "kw_..."), { userId: "ana" });
 *     const model = wrapLanguageModel({ model: openai("gpt-5-mini"), middleware });
 *
 * What the memory shows stands in the user's newest message of each call of the model; the messages of the program never hold it. A call
 * may say of itself `providerOptions: { keepworth: { userId, conversation, before } }`. The answer says which episode the turn was, as
 * `providerMetadata.keepworth.episode`, which `memory.reward` takes, and the next call as `before`.
 */

import type { Memory } from "./index.js";
import { newestMessage, placeIn, toolEnds, withNotes } from "./prompts.js";
import { type Place, type SlotOptions, type Turn, Turns } from "./turns.js";

// The versions of the interface differ in parts of calls and results that are not read here.
type Call = any;
type Result = any;

interface Part {
  type: string;
  delta?: string;
  text?: string;
  providerExecuted?: boolean;
  providerMetadata?: Record<string, unknown>;
}

export interface KeepworthMiddleware {
  readonly specificationVersion: "v3";
  transformParams(options: { type: "generate" | "stream"; params: Call }): Promise<Call>;
  wrapGenerate(options: { doGenerate: () => PromiseLike<Result>; params: Call }): Promise<Result>;
  wrapStream(options: { doStream: () => PromiseLike<Result>; params: Call }): Promise<Result>;
}

/** Returns a middleware for `wrapLanguageModel`. One serves all persons and conversations of a program. */
export function keepworthMiddleware(memory: Memory, options: SlotOptions = {}): KeepworthMiddleware {
  const turns = new Turns(memory, "ai-sdk", options);
  const turnOf = new WeakMap<object, Turn>();

  return {
    specificationVersion: "v3",

    async transformParams({ params }) {
      const newest = newestMessage(params.prompt);
      if (!newest) return params;
      const place: Place = params.providerOptions?.keepworth ?? {};
      const turn = await turns.goOn(newest.words, place.conversation ? place : { ...place, ...placeIn(params.prompt, newest.at) });
      await turns.useTools(turn, toolEnds(params.prompt, newest.at));
      const call = turn.text ? { ...params, prompt: withNotes(params.prompt, newest.at, turn.text) } : { ...params };
      turnOf.set(call, turn);
      return call;
    },

    async wrapGenerate({ doGenerate, params }) {
      const result = await doGenerate();
      const turn = turnOf.get(params);
      if (!turn) return result;
      const parts = result.content as Part[];
      if (!parts.some(isCall)) await turns.finish(turn, parts.map(({ type, text }) => (type === "text" ? text : "")).join(""), result);
      return { ...result, providerMetadata: named(result.providerMetadata, turn) };
    },

    async wrapStream({ doStream, params }) {
      const result = await doStream();
      const turn = turnOf.get(params);
      if (!turn) return result;
      let answer = "";
      let unfinished = false;
      const heard = new TransformStream<Part, Part>({
        transform(part, controller) {
          if (part.type === "text-delta") answer += part.delta;
          unfinished ||= isCall(part) || part.type === "error";
          const ended = part.type === "finish" ? { ...part, providerMetadata: named(part.providerMetadata, turn) } : part;
          controller.enqueue(ended);
        },
        async flush() {
          if (!unfinished) await turns.finish(turn, answer, result);
        },
      });
      return { ...result, stream: result.stream.pipeThrough(heard) };
    },
  };
}

/** Whether a part is a call of a tool that runs in the program, behind which the turn goes on. */
function isCall(part: Part): boolean {
  return part.type === "tool-call" && !part.providerExecuted;
}

function named(metadata: Record<string, unknown> | undefined, turn: Turn): Record<string, unknown> | undefined {
  return turn.id ? { ...metadata, keepworth: { episode: turn.id } } : metadata;
}
