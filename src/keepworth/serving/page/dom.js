// Elements of the page. A text is only ever the text of an element: the page's policy (Trusted Types) refuses to make HTML of one.
import { element } from "./parts.js";

export { element };

// What is left out of children: the browser would write "null".
const there = children => children.flat(Infinity).filter(each => each !== null && each !== undefined && each !== false && each !== "");

// Puts children, as `make` takes them, in the place of those that an element has.
export const refill = (holder, ...children) => holder.replaceChildren(...there(children));

// An element with attributes, listeners (functions, by the name of the event) and children: texts, elements, lists of them, nothing.
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== undefined && value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...there(children));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

// What `charts.as_elements` gives, or an own drawing: [tag, attributes, children].
export function drawn([tag, attributes, children = []]) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map(each => typeof each === "string" ? each : drawn(each)));
  return made;
}

const NAMES = {
  0x200b: "zero width space", 0x200c: "zero width non-joiner", 0x200d: "zero width joiner", 0x200e: "left-to-right mark",
  0x200f: "right-to-left mark", 0x202a: "left-to-right embedding", 0x202b: "right-to-left embedding", 0x202c: "pop directional formatting",
  0x202d: "left-to-right override", 0x202e: "right-to-left override", 0x2066: "left-to-right isolate", 0x2067: "right-to-left isolate",
  0x2068: "first strong isolate", 0x2069: "pop directional isolate", 0xfeff: "byte order mark",
};
// Controls but line breaks and tabs, marks that turn the direction of text round, tags, and white space that nobody sees. The two that join
// letters belong to many scripts, and to faces.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/u;
const SHORT = 4000;

// A text that somebody wrote: as data, with names in the place of what cannot be seen, and cut where it is long. short: characters.
export function said(text, short = SHORT) {
  const holder = make("bdi", { class: "said", dir: "auto" });
  const show = length => {
    holder.replaceChildren(...pieces(text.slice(0, length)));
    if (text.length > length) {
      holder.append("… ");
      if (short >= SHORT) {
        holder.append(make("button", { type: "button", class: "plain", click: () => show(text.length) },
          `Show all ${text.length.toLocaleString("en")} characters`));
      }
    }
  };
  show(short);
  return holder;
}

function pieces(text) {
  if (!UNSEEN.test(text)) return [text];
  const found = [];
  let run = "";
  for (const character of text) {
    if (!UNSEEN.test(character)) { run += character; continue; }
    const code = character.codePointAt(0);
    const name = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    if (run) found.push(run);
    run = "";
    found.push(make("span", { class: "unseen", title: `${name} ${NAMES[code] ?? "control character"}` }, name));
  }
  return run ? [...found, run] : found;
}

const DAY = { year: "numeric", month: "short", day: "numeric" };

// Times are UTC without saying so.
export const dateOf = time => new Date(/[zZ]$|[+-]\d\d:\d\d$/.test(time) ? time : `${time}Z`);

export function when(time) {
  if (!time) return "";
  const date = dateOf(time);
  if (Number.isNaN(date.getTime())) return time;
  const text = date.toLocaleString("en-GB", { ...DAY, hour: "2-digit", minute: "2-digit" });
  return make("time", { datetime: date.toISOString(), title: `${time.replace(/Z$/, "")} UTC` }, text);
}

export const number = value => Number(value).toLocaleString("en");
// JSON has no word for infinite numbers: they come as texts.
export const finite = value => typeof value === "number" && Number.isFinite(value);
export const signed = (value, digits = 2) => finite(value) ? `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}` : "none yet";
export const decimal = (value, digits = 3) => finite(value) ? value.toFixed(digits) : "none";

export const pill = (text, kind = "") => make("span", { class: `pill ${kind}` }, text);
export const card = (title, ...children) => make("section", { class: "card part" }, make("h2", {}, title), ...children);
export const empty = (...children) => make("div", { class: "empty" }, ...children);
export const code = text => make("code", {}, text);

// Names and values; those without a value are left out.
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return make("dl", { class: "facts-list" }, shown.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// A table that becomes cards on narrow screens. columns: [title, is it a number]; rows: lists of texts or elements.
export function table(label, columns, rows) {
  const head = columns.map(([title, isNumber]) => title ? make("th", { class: isNumber ? "number" : "", scope: "col" }, title) : make("td"));
  const lines = rows.map(cells => make("tr", {}, cells.map((cell, place) => make("td",
    { class: columns[place][1] ? "number" : "", "data-label": columns[place][0] }, cell))));
  return make("div", { class: "card" }, make("table", { class: "cards", "aria-label": label },
    make("thead", {}, make("tr", {}, head)), make("tbody", {}, lines)));
}

// An estimate with its interval between low and high, with a mark at 0.
export function interval(value, low, high, from, to, kind = "") {
  const span = to - from || 1, at = each => 4 + 112 * (Math.min(Math.max(each, from), to) - from) / span;
  const mark = (tag, attributes) => [tag, attributes];
  const parts = [mark("line", { class: "grid", x1: 4, x2: 116, y1: 9, y2: 9 })];
  if (from < 0 && to > 0) parts.push(mark("line", { class: "zero", x1: at(0), x2: at(0), y1: 2, y2: 16 }));
  if (finite(low) && finite(high)) parts.push(mark("line", { class: `reach ${kind}`, x1: at(low), x2: at(high), y1: 9, y2: 9 }));
  parts.push(mark("circle", { class: `mean ${kind}`, cx: at(value), cy: 9, r: 4.2 }));
  return drawn(["svg", { class: "whisker", viewBox: "0 0 120 18", width: 120, "aria-hidden": "true" }, parts]);
}

// A question before something is done. Gives whether it was answered with yes.
export function asked(title, body, yes, no = "Keep it") {
  return new Promise(resolve => {
    const dialog = make("dialog", { class: "card", "aria-labelledby": "question" },
      make("h2", { id: "question" }, title), body,
      make("div", { class: "buttons" },
        make("button", { type: "button", class: "main", click: () => dialog.close("yes") }, yes),
        make("button", { type: "button", autofocus: true, click: () => dialog.close("") }, no)));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// What happened, said at the bottom of the page until it is dismissed or the next thing happens.
export function news(...children) {
  const place = document.getElementById("news");
  place.replaceChildren(make("div", { class: "card" }, make("div", {}, children),
    make("button", { type: "button", "aria-label": "Dismiss", click: () => place.replaceChildren() }, "×")));
}

export function problem(error) {
  return make("div", { class: "problem card", role: "alert" },
    make("b", {}, said(error.message)), error.fix ? make("p", {}, said(error.fix)) : null);
}
