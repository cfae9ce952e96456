/**
 * A client of a keepworth memory that `keepworth serve --memory FILE` serves.
 *
 *     const memory = new Memory("http://127.0.0.1:8000", "kw_...");
 *     await memory.add("Ana lives in Oslo.", { user_id: "ana" });
 *     const found = await memory.search("Where does Ana live?", { user_id: "ana", top_k: 3 });
 *     await memory.reward(found.decision, 1);
 *
 * What a call takes is typed from the server's description (`schema.d.ts`, which `make typescript` writes). Every other route is
 * there as `memory.routes`, which takes a path and what the description says of it.
 */

import createClient, { type Client } from "openapi-fetch";

import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
type Options<Name extends keyof Schemas, Given extends string> = Omit<Schemas[Name], Given>;

export interface Item {
  id: string;
  text: string;
  kind: string;
  scope: { tenant: string; user: string; agent: string; session: string };
  written_at: string;
  [field: string]: unknown;
}

export interface Hit {
  item: Item;
  score: number;
  span: [number, number] | null;
  why: { moved: string; reason: string; worth: unknown };
}

/** What a search found: `text` goes into a prompt, `decision` to `reward`. `missing` are the ids that had no room in `text`. */
export interface Hits {
  hits: Hit[];
  text: string;
  missing: string[];
  decision: string;
  propensity: number;
}

/** The server refused a call. `fix` says what to do about it. */
export class MemoryError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly fix: string,
  ) {
    super(`${detail} ${fix}`.trim());
    this.name = "MemoryError";
  }
}

type Answer = { data?: unknown; error?: unknown; response: Response };

/** Returns what the server answered. Throws a MemoryError if it refused the call. */
async function answered<Result>(call: Promise<Answer>): Promise<Result> {
  const { data, error, response } = await call;
  if (response.ok) return data as Result;
  const { code = "", detail = "", fix = "" } = (error ?? {}) as Record<string, string>;
  throw new MemoryError(response.status, code, detail || `The server answered ${response.status}.`, fix);
}

export class Memory {
  /** Every route of the server, by its path. */
  readonly routes: Client<paths>;

  /** `timeout` is how many milliseconds an answer is waited for. */
  constructor(url: string, token = "", { timeout = 30_000 }: { timeout?: number } = {}) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    this.routes = createClient<paths>({
      baseUrl: url.replace(/\/(v1\/?)?$/, ""),
      headers,
      fetch: (request) => fetch(request, { signal: AbortSignal.timeout(timeout) }),
    });
  }

  /** Remembers a text, and returns its item. */
  async add(content: string, options: Partial<Options<"AddItems", "content" | "texts">> = {}): Promise<Item> {
    const body = { ...options, content } as Schemas["AddItems"];
    const { items } = await answered<{ items: Item[] }>(this.routes.POST("/v1/memory/items", { body }));
    return items[0];
  }

  /** Hands messages to the memory's writer, which keeps what they state, and returns its items. */
  async hear(messages: Said[], options: Partial<Options<"AddItems", "content" | "texts" | "infer">> = {}): Promise<Item[]> {
    const body = { ...options, content: messages, infer: true } as unknown as Schemas["AddItems"];
    return (await answered<{ items: Item[] }>(this.routes.POST("/v1/memory/items", { body }))).items;
  }

  /** Finds items, the best first. */
  search(query: string, options: Partial<Options<"Search", "query">> = {}): Promise<Hits> {
    const body = { ...options, query } as Schemas["Search"];
    return answered(this.routes.POST("/v1/memory/search", { body }));
  }

  /** Rewards what a search or an episode showed, now or days later. */
  reward(target: string, value: number, options: Partial<Options<"Reward", "target" | "value">> = {}): Promise<unknown> {
    const body = { ...options, target, value } as unknown as Schemas["Reward"];
    return answered(this.routes.POST("/v1/memory/rewards", { body }));
  }

  /** Returns an item in its latest state. */
  get(id: string): Promise<Item> {
    return answered(this.routes.GET("/v1/memory/items/{id}", { params: { path: { id } } }));
  }

  /** Begins an attempt at a task. */
  async episode(task: string, options: Partial<Options<"BeginEpisode", "task">> = {}): Promise<Episode> {
    const body = { ...options, task } as Schemas["BeginEpisode"];
    const { id } = await answered<{ id: string }>(this.routes.POST("/v1/memory/episodes", { body }));
    return new Episode(this.routes, id);
  }

  /** Goes on with an attempt that was begun before, in whichever process. */
  reopen(id: string): Episode {
    return new Episode(this.routes, id);
  }
}

/** A message. `asked` is the answer that it answers, and `before` the message before that. */
export interface Said {
  role: string;
  content: string;
  said_at?: string;
  before?: string;
  asked?: string;
}

/** An attempt at a task: `search`, then `act`, once for each step, and `reward` at the end. */
export class Episode {
  constructor(
    private readonly routes: Client<paths>,
    readonly id: string,
  ) {}

  search(query = "", options: Partial<Options<"EpisodeSearch", "query">> = {}): Promise<Hits> {
    const body = { ...options, query } as Schemas["EpisodeSearch"];
    return answered(this.routes.POST("/v1/memory/episodes/{id}/search", { params: { path: { id: this.id } }, body }));
  }

  act(action: string): Promise<unknown> {
    const body = { action } as Schemas["EpisodeAct"];
    return answered(this.routes.POST("/v1/memory/episodes/{id}/act", { params: { path: { id: this.id } }, body }));
  }

  /** Takes what was seen for the outcome of what the attempt showed: a signal by its name, the user's next message, or a tool's end. */
  signal(seen: Partial<Schemas["EpisodeSignal"]>): Promise<unknown> {
    const body = seen as Schemas["EpisodeSignal"];
    return answered(this.routes.POST("/v1/memory/episodes/{id}/signal", { params: { path: { id: this.id } }, body }));
  }

  reward(value: number, options: Partial<Options<"EpisodeReward", "value">> = {}): Promise<unknown> {
    const body = { ...options, value } as Schemas["EpisodeReward"];
    return answered(this.routes.POST("/v1/memory/episodes/{id}/reward", { params: { path: { id: this.id } }, body }));
  }

  end(outcome = "completed"): Promise<unknown> {
    const body = { outcome } as Schemas["EpisodeEnd"];
    return answered(this.routes.POST("/v1/memory/episodes/{id}/end", { params: { path: { id: this.id } }, body }));
  }
}
