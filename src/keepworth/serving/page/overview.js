// What is there, and what rewards say of it.
import { get } from "./api.js";
import { chart } from "./chart.js";
import { code, decimal, empty, finite, interval, make, number, pill, refill, said, signed, table } from "./dom.js";
import { howToBegin, verdictOf, VERDICTS } from "./memory.js";

const MOST = 12;

export function open() {
  const element = make("div", {}, make("h1", {}, "Overview"));
  return {
    element,
    async show() {
      const [all, ledger] = await Promise.all([get("/overview"), get("/ledger").catch(error => error)]);
      refill(element, make("h1", {}, "Overview"), tiles(all), all.items || all.episodes ? null : make("div", { class: "card" }, howToBegin()),
        rewards(all), await worth(ledger));
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
