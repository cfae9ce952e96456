// Episodes: what was asked, what was shown and how likely that was, what came of it; and of calls through the gateway what was sent.
import { get } from "./api.js";
import { Browser } from "./browser.js";
import { asked, card, code, decimal, empty, facts, finite, make, number, pill, said, table, when } from "./dom.js";
import { rolledBack } from "./memory.js";

const PAGE = 50;
const colour = reward => reward >= 0.5 ? "good" : reward > 0 ? "middling" : "bad";

export function open(session) {
  let person = null, words = "", turns = 0;
  const summaries = new Map();
  const place = (id, asked) => {
    const given = Object.entries(asked).filter(([, value]) => value);
    return `#/episodes${id ? `/${encodeURIComponent(id)}` : ""}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
  };
  const address = id => place(id, { words, user_id: person });
  const browser = new Browser({
    label: "Episodes",
    link: address,
    page: async after => {
      const found = await get("/episode_summaries", { limit: PAGE, after, user_id: person, words });
      for (const each of found.episodes) summaries.set(each.id, each);
      return { rows: found.episodes, next: found.next };
    },
    row: line,
    detail: id => detail(id, summaries.get(id), session, () => browser.load().then(() => browser.open(id))),
    nothing: () => words ? empty(make("p", {}, "No episode has these words in its task.")) : person ? empty(make("p", {}, "No episode of this person.")) : empty(make("p", {}, "No episodes yet."), make("p", {}, "An episode is one attempt at a task:"),
      make("pre", {}, 'with memory.episode("plan dinner") as episode:\n    episode.search("what she must not eat")\n    episode.reward(1.0)')),
  });
  const search = make("input", { type: "search", name: "words", autocomplete: "off", placeholder: "words of the task" });
  const field = make("input", { type: "search", name: "user_id", autocomplete: "off", placeholder: "everybody" });
  const form = make("form", { class: "search", role: "search", submit: event => {
    event.preventDefault();
    location.hash = place("", { words: search.value.trim(), user_id: field.value.trim() });
  } }, make("div", { class: "search-line" }, make("label", {}, "Search", search), session.user_id ? null : make("label", {}, "Person", field),
  make("button", { type: "submit", class: "main" }, "Show")));
  return {
    element: make("div", {}, make("h1", { class: "sr" }, "Episodes"), form, browser.element),
    browser,
    async show({ id, query }, first) {
      const turn = ++turns, wanted = query.get("user_id") ?? "", asked = query.get("words") ?? "";
      if (first || wanted !== person || asked !== words) {
        person = field.value = wanted;
        words = search.value = asked;
        await browser.load();
      }
      if (turn === turns) await browser.open(id, !first);
    },
  };
}

function line(each) {
  return [
    make("span", { class: "reward" }, each.reward === null ? "–" : make("span", { class: colour(each.reward) }, decimal(each.reward, 2))),
    make("span", { class: "question" }, each.task ? said(each.task, 300) : make("i", {}, "no task")),
    make("span", { class: "where" }, when(each.began), " · ", `${number(each.searches)} ${each.searches === 1 ? "search" : "searches"}, ${number(each.shown)} shown`,
      each.scope.user ? [" · ", said(each.scope.user, 60)] : "", each.outcome.startsWith("stopped by") ? [" ", pill(each.outcome, "bad")] : ""),
  ];
}

async function detail(id, summary, session, again) {
  const path = `/episodes/${encodeURIComponent(id)}`;
  const [record, receipt] = await Promise.all([get(path), summary?.receipt ? get(`${path}/receipt`) : null]);
  const texts = new Map((record.shown ?? []).map(each => [each.item, each.text]));
  return make("article", {},
    make("p", { class: "meta" }, make("b", {}, id), " ", pill(record.stop ?? "", record.stop === "completed" ? "good" : "")),
    make("div", { class: "text" }, record.task ? said(record.task) : make("i", {}, "no task")),
    summary ? facts([["begun", when(summary.began)], ["ended", when(summary.ended)], ["person", summary.scope.user && said(summary.scope.user)],
      ["for", summary.person && said(summary.person)], ["outcome", summary.outcome && said(summary.outcome)], ["memory then", record.memory_snapshot]]) : null,
    card("Rewards", (record.rewards ?? []).length ? make("ul", { class: "plain-list" }, record.rewards.map(each => make("li", {},
      make("b", { class: colour(each.value) }, decimal(each.value, 3)), " ", each.name !== each.scorer || !each.scorer ? said(each.name) : ["from ", said(each.scorer)])))
      : make("p", { class: "note" }, "None yet. ", code(`reward("${id}", 1.0)`), " says what came of it, at once or days later.")),
    ...(record.decisions ?? []).map((each, place) => choice(each, place, texts)),
    (record.decisions ?? []).length ? null : card("Searches", make("p", { class: "note" }, "Nothing was searched for.")),
    receipt ? receiptOf(receipt) : summary ? null : lookedFor(path),
    answer(record),
    operations(record),
    (record.errors ?? []).length ? card("Errors", make("ul", {}, record.errors.map(each => make("li", {}, said(each))))) : null,
    session.can("admin") ? make("p", {}, make("button", { type: "button", click: () => undo(id, record, again) }, "Undo what this episode did")) : null);
}

// What was found, what of it was shown, and how likely that was under the policy that chose.
function choice(each, place, texts) {
  const chosen = new Set(each.chosen ?? []), candidates = each.candidates ?? [];
  const rows = candidates.slice(0, 30).map(([id, score]) => [
    make("a", { href: `#/memory/${encodeURIComponent(id)}` }, id), decimal(score, 3),
    chosen.has(id) ? pill("shown", "good") : pill("not shown"), texts.has(id) ? said(texts.get(id), 200) : ""]);
  return card(each.kind === "search" ? `Search ${place + 1}` : each.kind,
    each.query ? make("p", { class: "ask-line" }, said(each.query)) : null,
    facts([["policy", each.policy], ["probability of this choice", finite(each.propensity) ? each.propensity.toFixed(4) : ""], ["decision", each.id], ["step", each.step]]),
    rows.length ? table(`What search ${place + 1} found`, [["item", false], ["score", true], ["", false], ["text", false]], rows) : make("p", { class: "note" }, "Nothing was found, or the candidates are not kept any more."),
    candidates.length > 30 ? make("p", { class: "note" }, `${number(candidates.length - 30)} more were not shown.`) : null);
}

function receiptOf(receipt) {
  const ids = listed => (listed ?? []).length ? listed.map(each => [make("a", { href: `#/memory/${encodeURIComponent(each)}` }, each), " "]) : "none";
  return card("Receipt of the gateway", facts([
    ["recalled", ids(receipt.recalled)], ["in the prompt", ids(receipt.injected)], ["missing from it", ids(receipt.missing)],
    ["tokens of memory", receipt.tokens ?? ""], ["SHA-256 of the bytes", receipt.sha256 ? code(receipt.sha256) : ""]]));
}

// Of an episode that is not in the list it is not known whether it has one.
function lookedFor(path) {
  const button = make("button", { type: "button", click: () => get(`${path}/receipt`).then(found => button.replaceWith(receiptOf(found)),
    error => button.replaceWith(make("p", { class: "note" }, said(error.message)))) }, "Look for a receipt of the gateway");
  return button;
}

function answer(record) {
  return record.answer ? card("Answer", said(record.answer)) : null;
}

function operations(record) {
  const listed = record.operations ?? [];
  if (!listed.length) return null;
  return card("What it changed", make("ul", { class: "plain-list" }, listed.map(({ operation, outcome }) => make("li", {},
    make("b", {}, operation.kind), " ", (operation.targets ?? []).map(each => [make("a", { href: `#/memory/${encodeURIComponent(each)}` }, each), " "]),
    operation.text ? said(operation.text, 600) : "", " ", make("small", {}, said(outcome))))));
}

async function undo(id, record, again) {
  const count = (record.operations ?? []).length;
  const yes = await asked("Undo what this episode did?", make("div", {},
    make("p", {}, `${number(count)} changes of items and ${number((record.rewards ?? []).length)} rewards will no longer count.`),
    make("p", { class: "note" }, "The memory will be what it would be had the episode never been. The undo can be undone.")), "Undo the episode", "Keep it");
  if (yes) await rolledBack({ target: id }, again);
}
