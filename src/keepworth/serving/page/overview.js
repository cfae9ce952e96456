// What is there, what rewards say of it, and what the server counted.
import { get } from "./api.js";
import { chart } from "./chart.js";
import { code, decimal, empty, finite, interval, make, number, pill, refill, said, signed, table } from "./dom.js";
import { howToBegin, verdictOf, VERDICTS } from "./memory.js";

const MOST = 12;

export function open(session) {
  const element = make("div", {}, make("h1", {}, "Overview"));
  return {
    element,
    async show() {
      const [all, ledger, counted] = await Promise.all([
        get("/overview"), get("/ledger").catch(error => error),
        session.operates ? get("/metrics", {}, { base: "", text: true }).catch(() => "") : "",
      ]);
      refill(element, make("h1", {}, "Overview"), tiles(all), all.items || all.episodes ? null : make("div", { class: "card" }, howToBegin()),
        rewards(all), await worth(ledger), server(counted));
    },
  };
}

const tile = (name, value, note, href) => make("div", { class: "card tile" }, make("small", {}, name),
  make("b", {}, href ? make("a", { href }, value) : value), note ? make("span", {}, note) : null);

function tiles(all) {
  return make("div", { class: "tiles" },
    tile("items", number(all.items), "current", "#/memory"),
    tile("episodes", number(all.episodes), "", "#/episodes"),
    tile("rewards", `${number(all.rewards)}${all.all_rewards ? "" : "+"}`, all.mean === null ? "none yet" : `mean ${decimal(all.mean)}`),
    tile("policy", all.policy ?? "none", all.policy ? "chooses what is shown" : "nothing is learned"));
}

function rewards(all) {
  const head = make("h2", {}, "Rewards");
  if (all.rewards && !all.curve) {
    return make("section", {}, head, make("p", { class: "note" }, `One reward so far: ${decimal(all.mean)}. With the next one a curve begins.`));
  }
  if (!all.curve) {
    return make("section", {}, head, make("div", { class: "card" }, empty(make("p", {}, "No rewards yet."),
      make("p", {}, "Search inside an episode, and say what came of it:"),
      make("pre", {}, 'with memory.episode("plan dinner", user_id="ana") as episode:\n    hits = episode.search("what she must not eat")\n    episode.reward(1.0)'))));
  }
  return make("section", {}, head, make("div", { class: "charts one" }, chart(all.curve)));
}

async function worth(ledger) {
  const head = make("h2", {}, "What single items add");
  if (ledger instanceof Error) return make("section", {}, head, make("p", { class: "note" }, said(ledger.message)));
  // Of a token that is bound, the items that were never shown with a reward come, too.
  const known = ledger.accounts.filter(each => finite(each.success)).map(each => ({ ...each, verdict: verdictOf(each) }));
  if (!known.length) {
    return make("section", {}, head, make("p", { class: "note" },
      "Nothing yet. In a few searches of episodes one item is withheld by chance. The rewards with it and without it say what it adds."));
  }
  const rank = each => [each.low > 0 || each.high < 0 ? 0 : 1, -Math.abs(each.effect)];
  const listed = known.sort((a, b) => rank(a)[0] - rank(b)[0] || rank(a)[1] - rank(b)[1]).slice(0, MOST);
  const texts = await Promise.all(listed.map(each => get(`/items/${encodeURIComponent(each.item)}`).then(item => item.text, () => "")));
  const ends = listed.filter(each => finite(each.low));
  const from = Math.min(0, ...ends.map(each => each.low)), to = Math.max(0, ...ends.map(each => each.high));
  const tested = known.some(each => each.shown + each.withheld > 0);
  const count = verdict => known.filter(each => each.verdict === verdict).length;
  const cost = known.reduce((sum, each) => sum + each.cost, 0);
  const points = ledger.rewarded && ledger.span ? 100 * cost / (ledger.rewarded * ledger.span) : 0;
  return make("section", {}, head,
    make("p", { class: "note" }, `${number(known.length)} ${known.length === 1 ? "item was" : "items were"} shown with a reward. ${tested
      ? `${number(count("helps"))} surely ${count("helps") === 1 ? "helps" : "help"}, ${number(count("harms"))} surely ${count("harms") === 1 ? "harms" : "harm"}. Withholding has ${points < 0 ? "gained" : "cost"} ${Math.abs(points).toFixed(2)} points of 100 an episode.`
      : "None was withheld or kept by chance yet, so what they add is not known. In a few searches of episodes one item is withheld: that takes more episodes."}`),
    table("What single items add", [["item", false], ["effect", true], ["", false], ["95 % interval", false], ["verdict", false], ["shown", true], ["withheld", true]],
      listed.map((each, place) => [[make("a", { href: `#/memory/${encodeURIComponent(each.item)}` }, each.item), " ", said(texts[place], 120)], each.shown + each.withheld ? signed(each.effect) : "none yet",
        finite(each.low) ? interval(each.mean, each.low, each.high, from, to, VERDICTS[each.verdict]) : "",
        finite(each.low) ? `${signed(each.low)} to ${signed(each.high)}` : "none yet", pill(each.verdict, VERDICTS[each.verdict] ?? ""), number(each.shown), number(each.withheld)])),
    known.length > MOST ? make("p", { class: "note" }, `The ${MOST} that are known best of ${number(known.length)}. All of them: `, code("keepworth memory ledger --file agent.mem"), ".") : null);
}

// Prometheus' text, as rows of {name, labels, value}.
function samples(text) {
  return text.split("\n").filter(each => each && !each.startsWith("#")).map(each => {
    const [, name, labels = "", value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(each) ?? [];
    return { name, labels: Object.fromEntries([...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, said_]) => [key, said_])), value: Number(value) };
  });
}

// The upper end of the bin in which this share of the calls ends.
function quantile(bins, share) {
  const total = bins.at(-1)?.value ?? 0;
  return bins.find(each => each.value >= share * total)?.labels.le ?? "";
}

function server(text) {
  if (!text) return null;
  const all = samples(text);
  const routes = [...new Set(all.filter(each => each.name === "keepworth_request_seconds_count").map(each => each.labels.route))]
    .filter(each => each !== "/" && !each.startsWith("/page/"));
  const of = (name, route) => all.filter(each => each.name === name && each.labels.route === route);
  const lines = routes.map(route => {
    const count = of("keepworth_request_seconds_count", route)[0].value, sum = of("keepworth_request_seconds_sum", route)[0].value;
    const bins = of("keepworth_request_seconds_bucket", route), within = share => `${1000 * quantile(bins, share)} ms`.replace("Infinity ms", "above 10 s").replace("NaN ms", "above 10 s");
    return { route, count, cells: [route, number(count), `${(1000 * sum / count).toFixed(1)} ms`, within(0.5), within(0.95)] };
  }).sort((a, b) => b.count - a.count);
  const tokens = all.filter(each => /tokens_total$|^keepworth_(prompts|recalled|injected|missing)/.test(each.name));
  return make("section", {}, make("h2", {}, "What this server did since it started"),
    lines.length ? table("Calls by route", [["route", false], ["calls", true], ["mean", true], ["half within", true], ["95 % within", true]], lines.slice(0, 10).map(each => each.cells)) : null,
    make("h3", {}, "Tokens and prompts"),
    tokens.length ? table("Counts of the gateway", [["count", false], ["of", false], ["value", true]],
      tokens.map(each => [each.name.replace(/^keepworth_|_total$/g, "").replaceAll("_", " "), Object.values(each.labels).join(", "), number(each.value)]))
      : make("p", { class: "note" }, "Tokens are counted where prompts pass through: ", code("keepworth serve --memory agent.mem --upstream URL"), "."));
}

