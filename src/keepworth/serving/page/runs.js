// Training runs: a list of them, and one with its curves while it trains.
import { get } from "./api.js";
import { Browser } from "./browser.js";
import { chart } from "./chart.js";
import { card, code, decimal, empty, facts, finite, make, number, pill, problem, said, table, when } from "./dom.js";

const PAGE = 50, SECONDS = 3;
const STATES = { finished: "good", running: "middling", unreadable: "bad" };

export function open() {
  let folder = "runs", timer = null, turns = 0;
  const lines = new Map();
  const browser = new Browser({
    label: "Runs",
    link: id => `#/runs${id ? `/${encodeURIComponent(id)}` : ""}`,
    page: async after => {
      const found = await get("/runs", { limit: PAGE, after });
      folder = found.folder;
      for (const each of found.runs) lines.set(each.name, each);
      return { rows: found.runs.map(each => ({ ...each, id: each.name })), next: found.next };
    },
    row: line,
    detail: async id => {
      const known = lines.get(id);
      if (known?.problem) return problem({ message: known.problem, fix: known.fix });
      const run = await get(`/runs/${encodeURIComponent(id)}`);
      clearTimeout(timer);
      if (run.state === "running") timer = setTimeout(() => { if (browser.opened === id && document.contains(browser.element)) refresh(id); }, 1000 * SECONDS);
      return whole(run);
    },
    nothing: () => empty(make("p", {}, `There is no run in ${folder || "the folder of runs"}.`), make("p", {}, "Train something, or name the folder when the server starts:"),
      make("pre", {}, "keepworth train --source chats.jsonl\nkeepworth serve --memory agent.mem --runs runs")),
  });
  // What is on the screen stays where it is while the numbers change.
  const refresh = async id => {
    const at = browser.side.scrollTop;
    await browser.open(id, false);
    browser.side.scrollTop = at;
  };
  return {
    element: make("div", {}, make("h1", {}, "Runs"), browser.element),
    browser,
    close: () => clearTimeout(timer),
    async show({ id }, first) {
      const turn = ++turns;
      clearTimeout(timer);
      if (first) await browser.load();
      if (turn === turns) await browser.open(id, !first);
    },
  };
}

function line(each) {
  const begun = each.created ? when(new Date(1000 * each.created).toISOString()) : "";
  return [
    make("span", { class: "question" }, make("b", {}, said(each.name, 120)), " ", pill(each.state, STATES[each.state] ?? "")),
    make("span", { class: "where" }, each.problem ? said(each.problem, 300)
      : [each.recipe && [said(each.recipe, 80), " · "], `step ${number(each.step)}`, finite(each.reward) ? ` · reward ${decimal(each.reward)}` : "", begun ? [" · ", begun] : ""]),
  ];
}

function whole(run) {
  const roles = [...new Set(run.curves.map(each => each.role))];
  return make("article", {},
    make("p", { class: "meta" }, make("b", {}, said(run.name)), " ", pill(run.state, STATES[run.state] ?? "")),
    run.headline ? make("div", { class: "text" }, said(run.headline)) : null,
    facts([["recipe", run.recipe && said(run.recipe)], ["model", run.model && said(run.model)], ["step", number(run.step)],
      ["begun", run.created ? when(new Date(1000 * run.created).toISOString()) : ""]]),
    run.tables.map(results),
    roles.map(role => make("section", {}, make("h2", {}, role || "Curves"), make("div", { class: "charts" }, run.curves.filter(each => each.role === role).map(chart)))),
    run.curves.length ? null : card("Curves", make("p", { class: "note" }, "There are none before the second step.")),
    run.every > 1 ? make("p", { class: "note" }, `Every ${run.every}th step is drawn. All are in metrics.jsonl, and in `, code(`keepworth report ${run.name}`), ".") : null,
    make("details", {}, make("summary", {}, "Configuration"), settings(run.config), make("h2", {}, "Where it ran"), settings(run.environment)));
}

export const settings = values => make("div", { class: "settings" }, Object.entries(values).map(([name, value]) =>
  make("div", {}, make("span", {}, name), code(value === null ? "not set" : typeof value === "string" ? value : JSON.stringify(value)))));

function results({ title, note, metrics, rows }) {
  const columns = [["", false], ...metrics.map(each => [each, true]), ["questions", true]];
  const cell = each => each && finite(each[0]) ? `${decimal(each[0])}${finite(each[1]) ? ` [${each[1].toFixed(2)}, ${each[2].toFixed(2)}]` : ""}` : "";
  return make("section", {}, make("h2", {}, title), table(title, columns, rows.map(({ label, cells, n, emphasis }) =>
    [emphasis ? make("b", {}, label) : label, ...cells.map(cell), n])), note ? make("p", { class: "note" }, said(note)) : null);
}
