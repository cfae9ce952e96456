// Written by clients/typescript/generate.py from the OpenAPI document of keepworth 0.1.0: change that, not this.
// Needs `fetch` and `crypto`: Node 20, Deno, Bun, a browser extension. No other package.

/** What the server answers: the fields are those of the Python client's records. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Answer = Record<string, any>;

export interface ActBody {
  action: string;
}

export interface EndBody {
  outcome?: string;
}

export interface EpisodeBody {
  user_id?: string;
  agent_id?: string;
  session_id?: string;
  task?: string;
  by?: string;
  explore?: boolean;
}

export interface EpisodeRewardBody {
  value: number;
  by?: string | null;
  source?: string;
}

export interface EpisodeSearchBody {
  user_id?: string;
  agent_id?: string;
  session_id?: string;
  top_k?: number;
  mode?: string | null;
  threshold?: number | null;
  actions?: string[];
  explain?: boolean;
  kinds?: string[];
  statuses?: string[];
  where?: Record<string, unknown> | null;
  since?: string | number;
  until?: string | number;
  as_of?: string | number;
  half_life?: number;
  diversity?: number;
  query?: string;
}

/** At least one of them. */
export interface EraseBody {
  user_id?: string;
  agent_id?: string;
  session_id?: string;
}

export interface ForgetBody {
  ids: string[];
  purge_history?: boolean;
}

/** One of `content` and `texts`. */
export interface NewItemsBody {
  user_id?: string;
  agent_id?: string;
  session_id?: string;
  /** A text, or messages with role and content. */
  content?: string | Record<string, unknown>[] | null;
  /** Several texts: all of them or none. */
  texts?: string[] | null;
  /** Let the writer of this server say what to keep of `content`. */
  infer?: boolean;
  kind?: string;
  key?: string;
  event_time?: string | number;
  valid_from?: string | number;
  valid_to?: string | number;
  expires_at?: string | number;
  ttl?: number | null;
  trust?: number;
  status?: string;
  metadata?: Record<string, unknown> | null;
  source?: string;
  provenances?: ProvenanceBody[] | null;
  dedupe?: boolean | number;
  repeat?: boolean;
  episode?: string;
}

export interface PolicyBody {
  policy: string;
}

/** Problem details (RFC 9457). */
export interface Problem {
  type: string;
  title: string;
  detail: string;
  code: string;
  field: string;
  value: string;
  fix: string;
  status: number;
}

export interface ProvenanceBody {
  source?: string;
  session?: string;
  turn?: number;
  speaker?: string;
  date?: string;
}

export interface RewardBody {
  value: number;
  by?: string | null;
  source?: string;
  /** An episode's id, or the `decision` of a search. */
  target: string;
}

/** One of them. */
export interface RollbackBody {
  target?: string;
  source?: string;
  since?: string;
  rewarder?: string;
  /** One change, by the `seq` that the history of an item gives it. */
  entry?: number;
}

export interface SearchBody {
  user_id?: string;
  agent_id?: string;
  session_id?: string;
  top_k?: number;
  mode?: string | null;
  threshold?: number | null;
  actions?: string[];
  explain?: boolean;
  kinds?: string[];
  statuses?: string[];
  where?: Record<string, unknown> | null;
  since?: string | number;
  until?: string | number;
  as_of?: string | number;
  half_life?: number;
  diversity?: number;
  query: string;
  episode?: string;
  step?: number;
}

export interface SearchesBody {
  user_id?: string;
  agent_id?: string;
  session_id?: string;
  top_k?: number;
  mode?: string | null;
  threshold?: number | null;
  actions?: string[];
  explain?: boolean;
  kinds?: string[];
  statuses?: string[];
  where?: Record<string, unknown> | null;
  since?: string | number;
  until?: string | number;
  as_of?: string | number;
  half_life?: number;
  diversity?: number;
  queries: string[];
  episode?: string;
  step?: number;
}

export interface StepRewardBody {
  value: number;
}

export interface SupersedeBody {
  text: string;
  event_time?: string | number;
  key?: string;
  expires_at?: string | number;
  metadata?: Record<string, unknown> | null;
  source?: string;
  episode?: string;
}

export interface TokenBody {
  tenant?: string | null;
  user_id?: string;
  agent_id?: string;
  roles?: string[];
  name?: string;
  /** Until it ends; never if left out. */
  days?: number | null;
  /** By name of a user that stands for a team: read, or read and write. */
  shared?: Record<string, unknown>;
}

export interface UpdateBody {
  text?: string | null;
  status?: string | null;
  trust?: number | null;
  expires_at?: string | number | null;
  metadata?: Record<string, unknown> | null;
  repeat?: boolean;
  episode?: string;
}

/** What the server refuses, or that it gave no answer: then `status` is 0. */
export class KeepworthError extends Error {
  status: number;
  code: string;
  field: string;
  fix: string;
  constructor(problem: Partial<Problem>) {
    super([problem.detail, problem.fix].filter(Boolean).join(" "));
    this.name = "KeepworthError";
    this.status = problem.status ?? 0;
    this.code = problem.code ?? "";
    this.field = problem.field ?? "";
    this.fix = problem.fix ?? "";
  }
}

export interface Options {
  /** Times that a request is sent again where no answer came, or 429, 502, 503 or 504. Writes carry a key and are done once. */
  retries?: number;
  /** Milliseconds for one answer. */
  timeout?: number;
  fetch?: typeof fetch;
}

/** The verbs of a memory that `keepworth serve --memory` serves. url: as it printed it; token: as it printed it. */
export class Keepworth {
  private base: string;
  private token: string;
  private options: Required<Options>;

  constructor(url: string, token: string, options: Options = {}) {
    this.base = url.replace(/\/+$/, "").replace(/\/v1(\/memory)?$/, "");
    this.token = token;
    this.options = { retries: 3, timeout: 30000, fetch: globalThis.fetch, ...options };
  }

  /** Remember a text, messages, or several texts. Role: write. */
  addItems(body: NewItemsBody = {}): Promise<Answer> {
    return this.send("POST", `/v1/memory/items`, {}, body, true);
  }

  /** Items in order of writing, or the newest first, a page at a time. Role: read. */
  listItems(query: { user_id?: string; agent_id?: string; session_id?: string; kinds?: string; limit?: number; after?: string; newest?: boolean; all_states?: boolean; where?: string } = {}): Promise<Answer> {
    return this.send("GET", `/v1/memory/items`, query, null, false);
  }

  /** Delete every item of a user, an agent or a session. Role: write. */
  deleteItems(query: { user_id?: string; agent_id?: string; session_id?: string } = {}): Promise<Answer> {
    return this.send("DELETE", `/v1/memory/items`, query, null, true);
  }

  /** An item in its latest state. Role: read. */
  getItem(id: string): Promise<Answer> {
    return this.send("GET", `/v1/memory/items/${encodeURIComponent(id)}`, {}, null, false);
  }

  /** Reword an item, or set its status, trust, end or metadata. Role: write. */
  updateItem(id: string, body: UpdateBody = {}): Promise<Answer> {
    return this.send("PATCH", `/v1/memory/items/${encodeURIComponent(id)}`, {}, body, true);
  }

  /** Hide an item; it can be brought back by a rollback. Role: write. */
  deleteItem(id: string, query: { episode?: string } = {}): Promise<Answer> {
    return this.send("DELETE", `/v1/memory/items/${encodeURIComponent(id)}`, query, null, true);
  }

  /** The fact changed: a new item takes the place of this one. Role: write. */
  supersedeItem(id: string, body: SupersedeBody): Promise<Answer> {
    return this.send("POST", `/v1/memory/items/${encodeURIComponent(id)}/supersede`, {}, body, true);
  }

  /** Everything that happened to an item. Role: read. */
  itemHistory(id: string): Promise<Answer> {
    return this.send("GET", `/v1/memory/items/${encodeURIComponent(id)}/history`, {}, null, false);
  }

  /** What showing an item adds, as far as rewards say. Role: read. */
  itemWorth(id: string, query: { query: string }): Promise<Answer> {
    return this.send("GET", `/v1/memory/items/${encodeURIComponent(id)}/worth`, query, null, false);
  }

  /** Items in quarantine, which no search shows, a page at a time. Role: admin. */
  listQuarantined(query: { limit?: number; after?: string } = {}): Promise<Answer> {
    return this.send("GET", `/v1/memory/quarantine`, query, null, false);
  }

  /** Let an item out of quarantine. Role: admin. */
  releaseItem(id: string): Promise<Answer> {
    return this.send("POST", `/v1/memory/items/${encodeURIComponent(id)}/release`, {}, null, true);
  }

  /** Delete items, or erase them for good (role admin). Role: write. */
  forgetItems(body: ForgetBody): Promise<Answer> {
    return this.send("POST", `/v1/memory/forget`, {}, body, true);
  }

  /** The items that fit a query, best first. Role: read. */
  search(body: SearchBody): Promise<Answer> {
    return this.send("POST", `/v1/memory/search`, {}, body, false);
  }

  /** Several searches at once. Role: read. */
  searchMany(body: SearchesBody): Promise<Answer> {
    return this.send("POST", `/v1/memory/searches`, {}, body, false);
  }

  /** Begin an episode: one attempt at a task. Role: read. */
  beginEpisode(body: EpisodeBody = {}): Promise<Answer> {
    return this.send("POST", `/v1/memory/episodes`, {}, body, true);
  }

  /** Ids of episodes, oldest first, a page at a time. Role: read. */
  listEpisodes(query: { user_id?: string; agent_id?: string; session_id?: string; limit?: number; after?: string } = {}): Promise<Answer> {
    return this.send("GET", `/v1/memory/episodes`, query, null, false);
  }

  /** The record of an episode. Role: read. */
  getEpisode(id: string): Promise<Answer> {
    return this.send("GET", `/v1/memory/episodes/${encodeURIComponent(id)}`, {}, null, false);
  }

  /** Which items were recalled for a call through the gateway, and which are in the bytes that went upstream. Role: read. */
  getReceipt(id: string): Promise<Answer> {
    return this.send("GET", `/v1/memory/episodes/${encodeURIComponent(id)}/receipt`, {}, null, false);
  }

  /** Search as part of an episode. Role: read. */
  episodeSearch(id: string, body: EpisodeSearchBody = {}): Promise<Answer> {
    return this.send("POST", `/v1/memory/episodes/${encodeURIComponent(id)}/search`, {}, body, false);
  }

  /** Say what was done after the last searches. Role: read. */
  episodeAct(id: string, body: ActBody): Promise<Answer> {
    return this.send("POST", `/v1/memory/episodes/${encodeURIComponent(id)}/act`, {}, body, true);
  }

  /** The reward of the last act alone. Role: reward. */
  episodeStepReward(id: string, body: StepRewardBody): Promise<Answer> {
    return this.send("POST", `/v1/memory/episodes/${encodeURIComponent(id)}/step_reward`, {}, body, true);
  }

  /** Credit everything an episode showed. Role: reward. */
  episodeReward(id: string, body: EpisodeRewardBody): Promise<Answer> {
    return this.send("POST", `/v1/memory/episodes/${encodeURIComponent(id)}/reward`, {}, body, true);
  }

  /** Note that an episode is over. Role: read. */
  episodeEnd(id: string, body: EndBody = {}): Promise<Answer> {
    return this.send("POST", `/v1/memory/episodes/${encodeURIComponent(id)}/end`, {}, body, true);
  }

  /** Credit an episode, or one search, at once or days later. Role: reward. */
  reward(body: RewardBody): Promise<Answer> {
    return this.send("POST", `/v1/memory/rewards`, {}, body, true);
  }

  /** Episodes in which something was done and that have no reward. Role: read. */
  pending(): Promise<Answer> {
    return this.send("GET", `/v1/memory/pending`, {}, null, false);
  }

  /** What showing each item added, from draws of chance. Role: read. */
  ledger(query: { items?: string; source?: string; everything?: boolean; exact?: boolean } = {}): Promise<Answer> {
    return this.send("GET", `/v1/memory/ledger`, query, null, false);
  }

  /** A name for the present state. Role: admin. */
  snapshot(): Promise<Answer> {
    return this.send("POST", `/v1/memory/snapshots`, {}, null, false);
  }

  /** Items that differ between two snapshots. Role: admin. */
  diff(query: { one: string; other?: string }): Promise<Answer> {
    return this.send("GET", `/v1/memory/diff`, query, null, false);
  }

  /** Undo an episode, a source, a person's rewards, one change, or all since a snapshot. Role: admin. */
  rollback(body: RollbackBody = {}): Promise<Answer> {
    return this.send("POST", `/v1/memory/rollbacks`, {}, body, true);
  }

  /** All items and episodes of a user, an agent or a session, as lines of JSON. Role: admin. */
  export(query: { user_id?: string; agent_id?: string; session_id?: string } = {}): Promise<Answer> {
    return this.send("GET", `/v1/memory/export`, query, null, false);
  }

  /** Erase a user, an agent or a session for good. Role: admin. */
  erase(body: EraseBody = {}): Promise<Answer> {
    return this.send("POST", `/v1/memory/erase`, {}, body, true);
  }

  /** What this token opens. Role: read. */
  who(): Promise<Answer> {
    return this.send("GET", `/v1/memory/access`, {}, null, false);
  }

  /** Tokens at rest, without the tokens. Role: admin. */
  listTokens(): Promise<Answer> {
    return this.send("GET", `/v1/memory/tokens`, {}, null, false);
  }

  /** A new token; this answer is the only place it is seen. Role: admin. */
  addToken(body: TokenBody = {}): Promise<Answer> {
    return this.send("POST", `/v1/memory/tokens`, {}, body, false);
  }

  /** Take a token back. Role: admin. */
  removeToken(id: string): Promise<Answer> {
    return this.send("DELETE", `/v1/memory/tokens/${encodeURIComponent(id)}`, {}, null, false);
  }

  /** Who did what, oldest first, a page at a time. Role: admin. */
  listAudit(query: { limit?: number; after?: number } = {}): Promise<Answer> {
    return this.send("GET", `/v1/memory/audit`, query, null, false);
  }

  /** How much there is, and what rewards say: their course, and what trials came to. Role: read. */
  overview(): Promise<Answer> {
    return this.send("GET", `/v1/memory/overview`, {}, null, false);
  }

  /** Episodes in one line each, the newest first, a page at a time. Role: read. */
  listEpisodeSummaries(query: { user_id?: string; agent_id?: string; session_id?: string; limit?: number; after?: string } = {}): Promise<Answer> {
    return this.send("GET", `/v1/memory/episode_summaries`, query, null, false);
  }

  /** Which policy chooses, and which others there are. Role: admin. */
  getPolicy(): Promise<Answer> {
    return this.send("GET", `/v1/memory/policy`, {}, null, false);
  }

  /** What mean reward another policy would have had on the logged choices. Role: admin. */
  estimatePolicy(query: { policy: string; method?: string }): Promise<Answer> {
    return this.send("GET", `/v1/memory/policy/estimate`, query, null, false);
  }

  /** Let another policy choose from now on. Role: admin. */
  promotePolicy(body: PolicyBody): Promise<Answer> {
    return this.send("POST", `/v1/memory/policy/promote`, {}, body, true);
  }

  /** Back to the policy before the last promotion. Role: admin. */
  demotePolicy(): Promise<Answer> {
    return this.send("POST", `/v1/memory/policy/demote`, {}, null, true);
  }

  /** What this server runs with. Role: admin. */
  getSettings(): Promise<Answer> {
    return this.send("GET", `/v1/memory/settings`, {}, null, false);
  }

  /** Training runs in the folder that the server was given, the newest first, a page at a time. Role: admin. */
  listRuns(query: { limit?: number; after?: string } = {}): Promise<Answer> {
    return this.send("GET", `/v1/memory/runs`, query, null, false);
  }

  /** A training run, with its curves and tables. Role: admin. */
  getRun(name: string): Promise<Answer> {
    return this.send("GET", `/v1/memory/runs/${encodeURIComponent(name)}`, {}, null, false);
  }

  private async send(method: string, path: string, query: object, body: object | null, writes: boolean): Promise<Answer> {
    const url = new URL(this.base + path);
    for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, String(value));
    const headers: Record<string, string> = { Authorization: `Bearer ${this.token}` };
    if (body !== null) headers["Content-Type"] = "application/json";
    if (writes) headers["Idempotency-Key"] = crypto.randomUUID();
    for (let attempt = 0, pause = 200; ; attempt += 1, pause *= 2) {
      const last = attempt >= this.options.retries || !(writes || method === "GET");
      try {
        const signal = AbortSignal.timeout(this.options.timeout);
        const sent = body === null ? undefined : JSON.stringify(body);
        const response = await this.options.fetch(url, { method, headers, body: sent, signal });
        if (response.ok) {
          const lines = (response.headers.get("content-type") ?? "").includes("ndjson");
          return lines ? { text: await response.text() } : ((await response.json()) as Answer);
        }
        const again = [429, 502, 503, 504].includes(response.status);
        const said = await response.text();
        if (last || !again) throw new KeepworthError(problemOf(said, response.status));
      } catch (error) {
        if (error instanceof KeepworthError) throw error;
        const detail = `${this.base} gave no answer (${String(error)}).`;
        if (last) throw new KeepworthError({ detail, fix: "Is the server running there?" });
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}

function problemOf(said: string, status: number): Partial<Problem> {
  try {
    return { ...(JSON.parse(said) as Partial<Problem>), status };
  } catch {
    return { status, detail: `The answer has status ${status}, and is not of a memory.` };
  }
}
