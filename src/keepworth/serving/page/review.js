// What the notes are worth by what came of the turns that they were shown in, and what is done with each.
import { get, post } from "./api.js";
import { code, empty, finite, interval, make, news, number, pill, problem, refill, said, signed } from "./dom.js";

const SHOWN = 30;
// As `choose.review.GROUPS` has them, with what each means.
const GROUPS = {
  "costs": ["Costs", "Turns went worse with it than without it.", "bad"],
  "earns": ["Earns", "Turns went better with it than without it.", "good"],
  "undecided": ["Undecided", "What it does is not known yet.", "middling"],
  "makes no difference": ["Makes no difference", "Turns went with it as without it.", ""],
  "always shown": ["Always shown", "Pinned, or of the kind core: chance leaves none of them out.", ""],
  "never needed": ["Never needed", "No turn with an outcome has shown it.", ""],
};
const DONE = { retire: "retired", keep: "kept", pin: "pinned" };

export function open(session) {
  const element = make("div", {}, make("h1", {}, "Review"));
  const load = async () => {
    element.setAttribute("aria-busy", "true");
    try {
      const review = await get("/review");
      refill(element, make("h1", {}, "Review"), make("p", { class: "summary" }, said(review.summary)), hint(review),
        Object.keys(GROUPS).map(name => group(name, review.items.filter(each => each.group === name), session, load)));
    } catch (error) {
      if (error.status === 401) throw error;
      refill(element, make("h1", {}, "Review"), problem(error));
    } finally {
      element.removeAttribute("aria-busy");
    }
  };
  return { element, show: load };
}

function hint({ items, rewarded }) {
  if (!items.length) return make("div", { class: "card" }, empty(make("p", {}, "There are no notes to review yet.")));
  if (rewarded) return null;
  return make("p", { class: "note" }, "No turn had an outcome yet: ", code("keepworth hook"), " sends those of a coding assistant, and a reward is one.");
}

function group(name, reviewed, session, again) {
  if (!reviewed.length) return null;
  const [title, meaning, kind] = GROUPS[name];
  const ends = reviewed.filter(each => finite(each.low) && finite(each.high)).flatMap(each => [each.low, each.high]);
  const reach = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const line = each => finding(each, kind, reach, session, again);
  const list = make("ul", { class: "findings card" }, reviewed.slice(0, SHOWN).map(line));
  const rest = reviewed.length > SHOWN ? make("button", { type: "button", class: "more", click: () => { list.append(...reviewed.slice(SHOWN).map(line)); rest.remove(); } },
    `Show ${number(reviewed.length - SHOWN)} more`) : null;
  return make("section", {}, make("h2", {}, `${title} `, make("span", { class: "count" }, number(reviewed.length))), make("p", { class: "note" }, meaning), list, rest);
}

// One note with its evidence, and the buttons for it.
function finding(reviewed, kind, reach, session, again) {
  const { item } = reviewed, holder = make("li", { class: "finding" });
  const tested = reviewed.group === "costs" || reviewed.group === "earns" || (reviewed.group === "undecided" && finite(reviewed.low));
  const state = make("span", { class: "state" }, reviewed.settled ? pill("kept") : "");
  const choices = make("div", { class: "choices" });
  const earlier = reviewed.settled || reviewed.group === "always shown";
  const act = async (choice, id) => {
    choices.querySelectorAll("button").forEach(each => { each.disabled = true; });
    try {
      await post("/review", { [choice]: [id] });
      // What was decided before this visit may be in another group without it.
      if (choice === "undo" && earlier && !holder.dataset.choice) await again();
      else settled(choice);
    } catch (error) {
      news(problem(error));
      choices.querySelectorAll("button").forEach(each => { each.disabled = false; });
    }
  };
  const button = (choice, label) => make("button", { type: "button", click: () => act(choice, item.id), "aria-label": `${label} ${item.id}` }, label);
  const settled = choice => {
    const done = DONE[choice];
    holder.dataset.choice = done ?? "";
    holder.classList.toggle("retired", choice === "retire");
    refill(state, done ? pill(done, choice === "retire" ? "bad" : "good") : "");
    const held = choices.contains(document.activeElement) || document.activeElement === document.body;
    refill(choices, done ? button("undo", "Undo") : offered());
    if (held) choices.querySelector("button")?.focus();
  };
  const offered = () => reviewed.group === "always shown"
    ? [button("retire", "Retire"), item.metadata?.pinned ? button("undo", "Undo") : null]
    : [button("retire", "Retire"), reviewed.settled ? button("undo", "Undo") : button("keep", "Keep"), button("pin", "Pin")];
  if (session.can("write")) refill(choices, offered());
  refill(holder,
    make("div", { class: "finding-text" }, make("a", { href: `#/memory/${encodeURIComponent(item.id)}` }, item.id), " ", said(item.text, 400), " ", state),
    tested ? make("div", { class: "finding-worth" }, make("b", { class: kind }, signed(reviewed.points, 1)), " points of 100 ",
      finite(reviewed.low) ? [interval(reviewed.points, reviewed.low, reviewed.high, ...reach, kind === "middling" ? "" : kind),
        make("span", { class: "note" }, ` ${signed(reviewed.low, 1)} to ${signed(reviewed.high, 1)}`)] : "") : null,
    make("p", { class: "note" }, reviewed.sentence, reviewed.needs ? [" ", reviewed.needs] : ""),
    choices);
  return holder;
}
