// What is there, and what rewards say of it.
import { get } from "./api.js";
import { chart } from "./chart.js";
import { asked, code, decimal, empty, finite, interval, make, number, pill, refill, said, signed, table, when } from "./dom.js";
import { howToBegin, rolledBack, verdictOf, VERDICTS } from "./memory.js";

const MOST = 12;

export function open(session) {
  const element = make("div", {}, make("h1", {}, "Overview"));
  const show = async () => {
    const [all, ledger, { sources }] = await Promise.all([get("/overview"), get("/ledger").catch(error => error), get("/outcomes")]);
    refill(element, make("h1", {}, "Overview"), tiles(all), all.items || all.episodes ? null : make("div", { class: "card" }, howToBegin()),
      rewards(all), outcomes(sources, session, show), await worth(ledger));
  };
  return { element, show };
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

// Where rewards came from, with a way to take each source back.
function outcomes(sources, session, again) {
  const lost = each => each.repeated + each.unknown + each.unusable;
  const came = sources.filter(each => each.rewards || lost(each));
  const never = sources.filter(each => each.kind === "signal" && !each.rewards);
  const listed = rows => rows.map(each => each.source.replace("signal:", "")).join(", ");
  const off = never.filter(each => !each.counts), unseen = never.filter(each => each.counts && each.weight > 0);
  const may = session.can("admin"), some = came.some(lost);
  const button = each => each.source && each.rewards
    ? make("button", { type: "button", class: "plain", "aria-label": `Take back ${each.source}`, click: () => takeBack(each, again) }, "Take back") : "";
  return make("section", {}, make("h2", {}, "Where rewards came from"),
    make("p", { class: "note" }, "Evaluators and signals, which are outcomes that nobody reported, count where nobody gave a reward, by their weights."),
    came.length ? table("Where rewards came from",
      [["source", false], ["rewards", true], ["mean", true], ["weight", true], ["last", false], ...some ? [["no reward", false]] : [], ...may ? [["", false]] : []],
      came.map(each => [[make("b", {}, said(each.source || "people", 60)), " ", each.source && each.about ? said(each.about, 120) : "", each.counts ? "" : [" ", pill("off")]],
        number(each.rewards), each.rewards ? decimal(each.mean, 2) : "none", decimal(each.weight, 2), each.last ? when(each.last) : "never",
        ...some ? [missed(each)] : [], ...may ? [button(each)] : []])) : null,
    unseen.length ? make("p", { class: "note" }, `Signals that never came: ${listed(unseen)}.`) : null,
    off.length ? make("p", { class: "note" }, `Signals that are switched off: ${listed(off)}.`) : null);
}

const missed = each => [["came again", each.repeated], ["named nothing here", each.unknown], ["had no score that is one", each.unusable]]
  .filter(([, count]) => count).map(([words, count]) => `${number(count)} ${words}`).join(", ");

async function takeBack(each, again) {
  const yes = await asked(`Take back ${each.source}?`, make("div", {},
    make("p", {}, `${number(each.rewards)} ${each.rewards === 1 ? "reward" : "rewards"} will count no more, and nothing else that came from there. `,
      "The memory learns anew without them."),
    make("p", { class: "note" }, "They stay in the journal, and this can be undone.")), "Take it back");
  if (yes) await rolledBack({ source: each.source }, again);
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
      ? `${number(count("helps"))} surely ${count("helps") === 1 ? "helps" : "help"}, ${number(count("harms"))} surely ${count("harms") === 1 ? "harms" : "harm"}. Leaving items out by chance has cost ${points > 0.005 ? `${points.toFixed(2)} points of 100 an episode` : "nothing"} so far.`
      : "None was withheld or kept by chance yet, so what they add is not known. In a few searches of episodes one item is withheld: that takes more episodes."}`),
    table("What single items add", [["item", false], ["effect", true], ["", false], ["95 % interval", false], ["verdict", false], ["shown", true], ["withheld", true]],
      listed.map((each, place) => [[make("a", { href: `#/memory/${encodeURIComponent(each.item)}` }, each.item), " ", said(texts[place], 120)], each.shown + each.withheld ? signed(each.effect) : "none yet",
        finite(each.low) ? interval(each.mean, each.low, each.high, from, to, VERDICTS[each.verdict]) : "",
        finite(each.low) ? `${signed(each.low)} to ${signed(each.high)}` : "none yet", pill(each.verdict, VERDICTS[each.verdict] ?? ""), number(each.shown), number(each.withheld)])),
    known.length > MOST ? make("p", { class: "note" }, `The ${MOST} that are known best of ${number(known.length)}. All of them: `, code("keepworth memory ledger --file agent.mem"), ".") : null);
}
