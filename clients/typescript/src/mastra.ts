/**
 * A memory of Mastra over a memory of keepworth.
 *
 *     import { Agent } from "@mastra/core/agent";
 *     import { Memory } from "keepworth-client";
 *     import { KeepworthMemory } from "keepworth-client/mastra";
 *
 *     const memory = new KeepworthMemory(new Memory("http://127.0.0.1:8000", "kw_..."));
 *     const agent = new Agent({ id: "helper", name: "Helper", instructions: "Be brief.", model: "openai/gpt-5-mini", memory });
 *     await agent.generate("I live in Oslo.", { memory: { thread: "chat", resource: "ana" } });
 *
 * It is Mastra's own `Memory`, which holds threads and their messages, and takes its options. What keepworth shows stands in the user's
 * newest message of each call of the model, and never in the thread. The resource is the person, and a thread is a conversation.
 */

import type { InputProcessor, OutputProcessor, Processor } from "@mastra/core/processors";
import type { RequestContext } from "@mastra/core/request-context";
import { Memory as ThreadMemory } from "@mastra/memory";

import type { Memory } from "./index.js";
import { type Message, newestMessage, placeIn, toolEnds, withNotes } from "./prompts.js";
import { type SlotOptions, type Turn, Turns } from "./turns.js";

type MastraPlace = { thread?: { id?: string }; resourceId?: string };
type ThreadOptions = NonNullable<ConstructorParameters<typeof ThreadMemory>[0]>;

export class KeepworthMemory extends ThreadMemory {
  readonly #slot: Slot;

  constructor(memory: Memory, { reward, userId, agentId, topK, warn, ...options }: SlotOptions & ThreadOptions = {}) {
    super(options);
    this.#slot = new Slot(new Turns(memory, "mastra", { reward, userId, agentId, topK, warn }));
  }

  override async getInputProcessors(...given: Parameters<ThreadMemory["getInputProcessors"]>): Promise<InputProcessor[]> {
    return [...(await super.getInputProcessors(...given)), this.#slot];
  }

  override async getOutputProcessors(...given: Parameters<ThreadMemory["getOutputProcessors"]>): Promise<OutputProcessor[]> {
    return [...(await super.getOutputProcessors(...given)), this.#slot];
  }
}

/** Recalls before each call of the model, and hears how a turn ends. */
class Slot implements Processor<"keepworth"> {
  readonly id = "keepworth";
  readonly #turns: Turns;
  readonly #turnOf = new WeakMap<RequestContext, Turn>();

  constructor(turns: Turns) {
    this.#turns = turns;
  }

  processLLMRequest: NonNullable<Processor["processLLMRequest"]> = async ({ prompt, requestContext }) => {
    const messages = prompt as Message[];
    const newest = newestMessage(messages);
    if (!newest || !requestContext) return undefined;
    const { thread, resourceId: userId } = (requestContext.get("MastraMemory") ?? {}) as MastraPlace;
    const place = thread?.id ? { conversation: thread.id } : placeIn(messages, newest.at);
    const turn = await this.#turns.goOn(newest.words, { ...place, userId });
    this.#turnOf.set(requestContext, turn);
    await this.#turns.useTools(turn, toolEnds(messages, newest.at));
    return turn.text ? { prompt: withNotes(messages, newest.at, turn.text) as typeof prompt } : undefined;
  };

  processOutputResult: NonNullable<Processor["processOutputResult"]> = async ({ messages, requestContext, result }) => {
    const turn = requestContext && this.#turnOf.get(requestContext);
    if (turn) await this.#turns.finish(turn, result.text, result);
    return messages;
  };
}
