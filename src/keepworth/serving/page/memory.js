// The memory browser: what is there, found as an agent finds it, and of each item why, since when, by whom, and what it is worth.
import { get, post } from "./api.js";
import { Browser } from "./browser.js";
import { asked, card, code, dateOf, decimal, drawn, empty, facts, finite, interval, make, news, number, pill, problem, said, signed, when } from "./dom.js";

const PAGE = 50, RECENT = 20;
const KINDS = ["fact", "episode", "case", "skill", "lesson", "core"];
const STATUSES = ["active", "candidate", "archived"];
const MODES = [["", "usual"], ["hybrid", "words and meaning"], ["lexical", "words"], ["dense", "meaning"]];
const FIELDS = ["q", "user_id", "agent_id", "session_id", "mode", "kind", "status", "as_of", "where", "top_k"];
export const VERDICTS = { helps: "good", harms: "bad" };

const DEFAULTS = {
  key: "", event_time: "", written_at: "", valid_from: "", valid_to: "", ended_at: "", expires_at: "", superseded_by: "", links: [],
  trust: 1, status: "active", deleted: false, revision: 0, metadata: {}, scope: { tenant: "", user: "", agent: "", session: "" },
  provenance: { source: "", session: "", turn: -1, speaker: "", date: "" }, values: { shown: 0, credited: 0, total: 0 },
};
// An item as the server gives it leaves out what is as usual.
const whole = item => item && { ...DEFAULTS, ...item };

export function open(session) {
  let asking = null, turns = 0;
  const hits = new Map();
  const query = () => asking?.q ?? "";
  const browser = new Browser({
    label: "Items",
    link: id => address(id, asking ?? {}),
    page: after => asking.q ? searched(asking, hits) : listed(asking, after, hits),
    row: each => line(each, hits.get(each.id)),
    detail: id => detail(id, hits.get(id), query(), session, () => browser.load().then(() => browser.open(id))),
    nothing: () => nothing(asking),
  });
  const form = searchForm(session, values => { location.hash = address("", values); });
  const element = make("div", {}, make("h1", { class: "sr" }, "Memory"), form.element, browser.element);
  return {
    element,
    browser,
    async show({ id, query: given }, first) {
      const turn = ++turns;
      const values = Object.fromEntries(FIELDS.map(name => [name, given.get(name) ?? ""]));
      if (first || JSON.stringify(values) !== JSON.stringify(asking)) {
        asking = values;
        form.fill(values);
        await browser.load();
      }
      if (turn === turns) await browser.open(id, !first);
    },
  };
}

function address(id, values) {
  const given = Object.entries(values).filter(([, value]) => value);
  return `#/memory${id ? `/${encodeURIComponent(id)}` : ""}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

function searchForm(session, search) {
  const fields = {};
  const input = (name, label, attributes = {}) => {
    fields[name] = make("input", { name, autocomplete: "off", spellcheck: "false", ...attributes });
    return make("label", {}, label, fields[name]);
  };
  const choice = (name, label, options) => {
    fields[name] = make("select", { name }, options.map(([value, text]) => make("option", { value }, text)));
    return make("label", {}, label, fields[name]);
  };
  const states = [["", "current"], ["all", "every state"], ...STATUSES.slice(1).map(each => [each, each])];
  if (session.can("admin")) states.push(["quarantined", "quarantined"]);
  const more = make("details", { class: "filters-more" }, make("summary", {}, "Filters"),
    make("div", { class: "filters" },
      session.user_id ? null : input("user_id", "Person"),
      session.agent_id ? null : input("agent_id", "Agent"),
      input("session_id", "Session"),
      choice("kind", "Kind", [["", "all"], ...KINDS.map(each => [each, each])]),
      choice("status", "State", states),
      choice("mode", "Search by", MODES),
      input("as_of", "As it was true at", { type: "datetime-local" }),
      input("where", "Metadata", { placeholder: '{"year": {"$gte": 2020}}' }),
      input("top_k", "At most", { type: "number", min: 1, max: 1000, placeholder: "10" })));
  const element = make("form", { class: "search", role: "search", submit: event => {
    event.preventDefault();
    search(Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value.trim()])));
  } },
  make("div", { class: "search-line" },
    input("q", "Search", { type: "search", placeholder: "ask as an agent would", title: "Empty lists the newest" }),
    make("button", { type: "submit", class: "main" }, "Search")), more);
  return {
    element,
    fill(values) {
      for (const [name, field] of Object.entries(fields)) field.value = values[name] ?? "";
      more.open = FIELDS.slice(1).some(name => values[name]);
    },
  };
}

const scopeOf = ({ user_id, agent_id, session_id }) =>
  Object.fromEntries(Object.entries({ user_id, agent_id, session_id }).filter(([, value]) => value));

async function listed(values, after, hits) {
  if (!after) hits.clear();
  if (values.status === "quarantined") {
    const found = await get("/quarantine", { limit: PAGE, after });
    return { rows: found.items.map(whole), next: found.next };
  }
  const wanted = values.status && values.status !== "all" ? values.status : "";
  const found = await get("/items", {
    ...scopeOf(values), kinds: values.kind, where: values.where, limit: PAGE, after, newest: true, all_states: Boolean(values.status),
  });
  const items = found.items.map(whole);
  return { rows: wanted ? items.filter(each => each.status === wanted) : items, next: found.next };
}

async function searched(values, hits) {
  const body = { query: values.q, ...scopeOf(values), explain: true, top_k: Number(values.top_k) || 10 };
  if (values.mode) body.mode = values.mode;
  if (values.kind) body.kinds = [values.kind];
  if (values.status) body.statuses = values.status === "all" ? STATUSES : [values.status];
  if (values.as_of) body.as_of = new Date(values.as_of).toISOString();
  if (values.where) body.where = asJson(values.where);
  const found = await post("/search", body);
  hits.clear();
  for (const hit of found.hits) hits.set(hit.item.id, { ...hit, item: whole(hit.item) });
  return { rows: [...hits.values()].map(hit => hit.item), next: "" };
}

function asJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw Object.assign(new Error(`The filter on metadata is not JSON: ${text}`), { fix: 'Write it as {"year": {"$gte": 2020}}.' });
  }
}

function nothing(values) {
  if (values.q) return empty(make("p", {}, "Nothing is found."), make("p", {}, "Ask in other words, or take filters away."));
  if (FIELDS.some(name => values[name])) return empty(make("p", {}, "No item is like that."), make("p", {}, "Take filters away."));
  return howToBegin();
}

export function howToBegin() {
  return empty(make("p", {}, "This memory is empty."), make("p", {}, "Put something in: "),
    make("pre", {}, `curl ${location.origin}/v1/memory/items \\\n  -H "Authorization: Bearer $TOKEN" \\\n  -H 'Content-Type: application/json' \\\n  -d '{"content": "Ana is allergic to peanuts", "user_id": "ana"}'`));
}

// One line of the list.
function line(item, hit) {
  const state = stateOf(item);
  return [
    make("span", { class: "score" }, hit ? decimal(hit.score, 2) : ""),
    make("span", { class: "question" }, said(item.text, 300)),
    make("span", { class: "where" }, item.id, " · ", item.kind, item.scope.user ? [" · ", said(item.scope.user, 60)] : "", " · ", when(item.event_time || item.written_at),
      state === "current" ? "" : [" ", pill(state, state === "superseded" ? "" : "bad")],
      hit?.conflicts.length ? [" ", pill(`contradicts ${hit.conflicts.join(", ")}`, "middling")] : "",
      hit?.why?.moved ? [" ", pill(`moved ${hit.why.moved} by rewards`, hit.why.moved === "up" ? "good" : "middling")] : ""),
  ];
}

function stateOf(item) {
  if (item.deleted) return "deleted";
  if (item.superseded_by || item.ended_at) return "superseded";
  if (item.status !== "active") return item.status;
  if (item.expires_at && dateOf(item.expires_at) <= new Date()) return "expired";
  return "current";
}

const link = id => make("a", { href: `#/memory/${encodeURIComponent(id)}` }, id);

async function detail(id, hit, query, session, again) {
  const item = whole(await get(`/items/${encodeURIComponent(id)}`));
  const [history, worth] = await Promise.all([
    get(`/items/${encodeURIComponent(id)}/history`).then(found => found.revisions.map(each => ({ ...each, before: whole(each.before), after: whole(each.after) }))).catch(error => error),
    get(`/items/${encodeURIComponent(id)}/worth`, { query: query || item.text.slice(0, 500) }).catch(error => error),
  ]);
  const state = stateOf(item);
  return make("article", {},
    make("p", { class: "meta" }, make("b", {}, item.id), " ", pill(item.kind), " ", pill(state, { current: "good", deleted: "bad", quarantined: "bad" }[state] ?? "")),
    make("div", { class: "text" }, said(item.text)),
    item.superseded_by ? make("p", { class: "note" }, "Something newer took its place: ", link(item.superseded_by)) : null,
    hit?.conflicts.length ? make("p", { class: "note" }, "Other items say something else of the same: ", hit.conflicts.map(each => [link(each), " "])) : null,
    item.links.length ? make("p", { class: "note" }, "Linked: ", item.links.map(([target, relation]) => [relation, " ", link(target), " "])) : null,
    hit ? why(hit) : null,
    worthOf(item, worth, query),
    card("When it is true", timeline(item, history instanceof Error ? [] : history)),
    card("Who wrote it", facts([
      ["source", item.provenance.source && said(item.provenance.source)],
      ["speaker", item.provenance.speaker && said(item.provenance.speaker)],
      ["session", item.provenance.session && said(item.provenance.session)],
      ["turn", item.provenance.turn >= 0 ? item.provenance.turn : ""],
      ["said on", item.provenance.date],
      ["written", when(item.written_at)],
      ["trust", item.trust],
      ["person", item.scope.user && said(item.scope.user)],
      ["agent", item.scope.agent && said(item.scope.agent)],
      ["session of the item", item.scope.session && said(item.scope.session)],
      ["key", item.key && said(item.key)],
      ["metadata", Object.keys(item.metadata).length ? said(JSON.stringify(item.metadata, null, 1)) : ""],
    ])),
    past(item, history, session, again));
}

// Everything that a score was made of.
function why(hit) {
  const { why: told } = hit;
  const terms = Object.entries(told.terms).sort((a, b) => b[1] - a[1]);
  const most = Math.max(...terms.map(([, value]) => value), 1e-9);
  return card("Why it was found",
    facts([
      ["score", decimal(hit.score, 4)],
      ["words (BM25)", finite(hit.lexical) ? `${decimal(hit.lexical)}${told.lexical_rank ? `, place ${told.lexical_rank}` : ""}` : "did not find it"],
      ["meaning (cosine)", finite(hit.dense) ? `${decimal(hit.dense)}${told.dense_rank ? `, place ${told.dense_rank}` : ""}` : "did not find it"],
      ["moved by reward", told.moved],
      ["in the place of", hit.instead_of && link(hit.instead_of)],
    ]),
    terms.length ? make("ul", { class: "terms-list", "aria-label": "What each word of the question adds" }, terms.map(([term, value]) => {
      const bar = make("i");
      bar.style.width = `${100 * value / most}%`;
      return make("li", {}, make("span", {}, said(term)), make("span", { class: "bar-of" }, bar), make("span", { class: "number" }, decimal(value, 2)));
    })) : null,
    hit.span ? make("p", { class: "note" }, "Nearest part: ", said([...hit.item.text].slice(...hit.span).join(""), 600)) : null);
}

function worthOf(item, worth, query) {
  const shown = item.values;
  const counts = facts([
    ["times with a reward", number(shown.credited)],
    ["mean reward then", shown.credited ? decimal(shown.total / shown.credited) : "none yet"],
  ]);
  if (worth instanceof Error) return card("What it is worth", make("p", { class: "note" }, said(worth.message)), counts);
  const all = worth.overall;
  const tested = all && all.shown + all.withheld > 0;
  const verdict = tested ? verdictOf(all) : "not tested";
  return card("What it is worth",
    make("p", {}, pill(verdict, VERDICTS[verdict] ?? ""), tested ? [" ", make("b", {}, signed(all.effect)), " reward, 95 % interval ",
      finite(all.low) ? `${signed(all.low)} to ${signed(all.high)}` : "none yet", " ",
      finite(all.low) ? interval(all.mean, all.low, all.high, Math.min(0, all.low), Math.max(0, all.high), VERDICTS[verdict]) : null] : ""),
    make("p", { class: "note" }, tested
      ? `Chance decided in ${number(all.shown + all.withheld)} episodes: shown in ${number(all.shown)}, withheld in ${number(all.withheld)}.`
      : "Chance has not yet decided whether it is shown. Search inside episodes and reward them."),
    query ? facts([
      ["reward expected for this question, with it first", worth.seen ? decimal(worth.with_it) : ""],
      ["otherwise", worth.seen ? decimal(worth.without) : ""],
      ["times it stood first there", worth.times ? decimal(worth.times, 1) : ""],
    ]) : null,
    counts);
}

// As `ledger.Account.verdict` says it.
export function verdictOf(account) {
  const { low, high, shown, withheld, span } = account;
  if (span > 0 && finite(low) && Math.max(-low, high) <= 0.05 * span) return "makes no difference";
  if (finite(low) && low > 0) return "helps";
  if (finite(high) && high < 0) return "harms";
  if (!(shown + withheld)) return "not tested";
  if (!span) return "all rewards were the same";
  return Math.min(shown, withheld) < 20 ? "too few to say" : "not known yet";
}

// Since when it is held true, until when, and what happened on the way.
function timeline(item, history) {
  const from = item.valid_from || item.event_time || item.written_at, until = item.valid_to || item.ended_at;
  const marks = [
    ["happened", item.event_time], ["written", item.written_at], ["true from", item.valid_from], ["true until", item.valid_to],
    ["closed", item.ended_at], ["hidden from", item.expires_at],
    ...history.slice(1).filter(each => each.kind !== "REWARD").map(each => [each.kind.toLowerCase(), each.at]),
  ].filter(([, at]) => at && !Number.isNaN(dateOf(at).getTime()));
  const now = Date.now();
  const times = [...marks.map(([, at]) => dateOf(at).getTime()), now];
  const first = Math.min(...times), span = Math.max(...times) - first || 1;
  const x = time => 10 + 380 * (time - first) / span;
  const begins = x(dateOf(from).getTime()), ends = x(until ? dateOf(until).getTime() : now);
  const bar = drawn(["svg", { viewBox: "0 0 400 34", class: "timeline", role: "img",
    "aria-label": `Held true from ${from} ${until ? `to ${until}` : "until now"}` }, [
    ["line", { class: "grid", x1: 10, x2: 390, y1: 17, y2: 17 }],
    ["line", { class: until ? "held over" : "held", x1: begins, x2: Math.max(ends, begins + 3), y1: 17, y2: 17 }],
    ...marks.map(([name, at]) => ["circle", { class: "mark", cx: x(dateOf(at).getTime()), cy: 17, r: 4 }, [["title", {}, [`${name} ${at}`]]]]),
    ["line", { class: "now", x1: x(now), x2: x(now), y1: 5, y2: 29 }],
  ]]);
  return make("div", {}, bar, facts([...marks.slice(0, 6).map(([name, at]) => [name, when(at)]), ["now", until ? "no longer held true" : "held true"]]));
}

// Every change, newest first, and the way back; folded, for it is long.
function past(item, history, session, again) {
  if (history instanceof Error) return card("History", problem(history));
  const line = each => make("li", {},
    make("div", { class: "change" }, make("b", {}, each.kind), " ", when(each.at), " ",
      each.source ? ["from ", said(each.source, 80), " "] : "",
      each.episode ? ["in ", make("a", { href: `#/episodes/${each.episode}` }, each.episode), " "] : "",
      session.can("admin") && each.kind !== "PURGE" ? make("button", { type: "button", class: "plain", "aria-label": `Undo ${each.kind} of ${item.id}, entry ${each.seq}`,
        click: () => undo(item, each, again) }, "Undo") : ""),
    changes(each));
  const newest = [...history].reverse(), list = make("ol", { class: "history" }, newest.slice(0, RECENT).map(line));
  const rest = newest.length > RECENT ? make("button", { type: "button", click: () => { list.append(...newest.slice(RECENT).map(line)); rest.remove(); } },
    `Show ${number(newest.length - RECENT)} more`) : null;
  const told = [`${number(newest.length)} ${newest.length === 1 ? "change" : "changes"}`, newest.length ? [", the last on ", when(newest[0].at)] : ""];
  return card("History", make("details", {}, make("summary", {}, told), list, rest));
}

function changes({ before, after }) {
  if (!after) return make("p", { class: "note" }, "It was not there any more.");
  if (!before) return make("div", { class: "after" }, said(after.text, 600));
  if (before.text !== after.text) return [make("div", { class: "before" }, said(before.text, 600)), make("div", { class: "after" }, said(after.text, 600))];
  const names = Object.keys(after).filter(name => name !== "values" && JSON.stringify(before[name]) !== JSON.stringify(after[name]));
  const listed = names.map(name => `${name}: ${JSON.stringify(before[name])} → ${JSON.stringify(after[name])}`);
  if (!listed.length) listed.push(`reward: ${before.values.credited} → ${after.values.credited} times, sum ${decimal(after.values.total)}`);
  return make("p", { class: "note" }, said(listed.join("; "), 600));
}

async function undo(item, change, again) {
  const yes = await asked(`Undo this change of ${item.id}?`, make("div", {},
    make("p", {}, make("b", {}, change.kind), " ", when(change.at)), changes(change),
    make("p", { class: "note" }, "The memory will be what it would be without this change. The change stays in the journal, and the undo can be undone.")),
  "Undo the change");
  if (!yes) return;
  await rolledBack({ entry: change.seq }, again);
}

// Takes something back, and says what became of it, with the way to undo that.
export async function rolledBack(what, again) {
  try {
    const done = await post("/rollbacks", what);
    const count = done.changed.length;
    news(make("p", {}, count ? `Undone. ${number(count)} ${count === 1 ? "item is" : "items are"} different now: ${done.changed.slice(0, 8).join(", ")}${count > 8 ? " ..." : ""}.`
      : "Nothing is different: the change did not count any more."),
    done.no_ops.length ? make("p", { class: "note" }, `${done.no_ops.length} later changes no longer apply: ${done.no_ops.map(([seq, reason]) => `${seq} (${reason})`).join(", ")}.`) : null,
    count ? make("button", { type: "button", click: () => rolledBack({ target: done.id }, again) }, "Undo the undo") : null);
    await again();
  } catch (error) {
    news(problem(error));
  }
}
