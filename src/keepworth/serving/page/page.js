// Signing in, the views and how one comes to another, and the keys.
import { decoded, forgetToken, get, keepToken, offeredToken, Refused, token } from "./api.js";
import { make, problem } from "./dom.js";

const VIEWS = [{ name: "overview", title: "Overview" }, { name: "memory", title: "Memory" }, { name: "review", title: "Review" },
  { name: "episodes", title: "Episodes" }];
const KEYS = [
  ["/", "search"], ["j k", "next row, row before"], ["Enter", "open the row"], ["Esc", "back to the list, out of a field"], ["?", "these keys"],
];
const main = document.getElementById("main");
const nav = document.getElementById("views");
let session = null, current = null, view = null;

// Where the address leads: {view, id, query}.
function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { view: name, id: decoded(rest.join("/")), query: new URLSearchParams(query) };
}

async function show() {
  if (!session) return;
  const wanted = route();
  const known = VIEWS.find(each => each.name === wanted.view) ?? VIEWS[0];
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.view === known.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${known.title} · keepworth`;
  const changed = current !== known.name;
  current = known.name;
  try {
    if (changed) {
      view?.close?.();
      view = null;
      const { open } = await import(`./${known.name}.js`);
      if (current !== known.name) return;
      view = open(session);
      main.replaceChildren(view.element);
    }
    await view.show(known.name === wanted.view ? wanted : { view: known.name, id: "", query: new URLSearchParams() }, changed);
  } catch (error) {
    main.replaceChildren(problem(error));
    if (error.status === 401) signIn(error);
  }
}

async function begin() {
  if (!token()) return signIn();
  try {
    const access = await get("/access");
    session = { ...access, can: role => access.roles.includes(role), signIn };
  } catch (error) {
    return signIn(error);
  }
  nav.replaceChildren(...VIEWS.map(each => make("a", { href: `#/${each.name}`, "data-view": each.name }, each.title)));
  nav.hidden = false;
  document.getElementById("who").textContent = session.name || session.user_id || session.agent_id || session.tenant || "";
  for (const id of ["help", "leave"]) document.getElementById(id).hidden = false;
  current = null;
  return show();
}

function start() {
  const offered = offeredToken();
  if (offered && offered !== token()) signIn(null, offered);
  else begin();
}

// offered: the token of the address that was opened.
function signIn(error = null, offered = "") {
  session = current = view = null;
  nav.hidden = true;
  document.getElementById("who").textContent = "";
  for (const id of ["help", "leave"]) document.getElementById(id).hidden = true;
  document.title = "Sign in · keepworth";
  if (error?.status === 401) forgetToken();
  const field = make("input", { type: "password", name: "token", autocomplete: "off", required: true, spellcheck: "false", id: "token", value: offered || null });
  const enter = make("button", { type: "submit", class: "main" }, "Sign in");
  const stay = offered && token() ? make("button", { type: "button", click: begin }, "Stay signed in as before") : null;
  const form = make("form", { class: "card part sign-in", submit: event => { event.preventDefault(); keepToken(field.value.trim()); begin(); } },
    make("h1", {}, "Sign in"),
    error && (error.status !== 401 || error.message) ? problem(error.status === 403 ? mayNotRead(error) : error) : null,
    make("label", { for: "token" }, "Token"), field,
    make("div", { class: "buttons" }, enter, stay),
    offered ? make("p", { class: "note" }, "This token came with the address that you opened. Sign in with it only if that address is your own: ",
      "what you do then is kept under this token.") : null,
    make("p", { class: "note" }, "The server prints a token when it starts, and an address that has it in it. ",
      "Others are made with ", make("code", {}, "keepworth memory token add --file agent.mem"), ". The token stays in this tab."));
  main.replaceChildren(form);
  (offered ? enter : field).focus();
}

const mayNotRead = error => new Refused(403, error.message, "This page reads. Use a token with the role read.");

function keys() {
  const dialog = make("dialog", { class: "card", "aria-labelledby": "keys" }, make("h2", { id: "keys" }, "Keys"),
    make("dl", { class: "keys" }, KEYS.map(([key, does]) => make("div", {}, make("dt", {}, key.split(" ").map(each => make("kbd", {}, each))), make("dd", {}, does)))),
    make("div", { class: "buttons" }, make("button", { type: "button", click: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

document.addEventListener("keydown", event => {
  if (!session || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const writing = event.target.matches("input, textarea, select");
  if (event.key === "Escape") {
    if (writing) event.target.blur();
    else if (view?.browser?.leave()) event.preventDefault();
  } else if (writing) {
    return;
  } else if (event.key === "/") {
    const field = main.querySelector("input[type=search]");
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  } else if (event.key === "j" || event.key === "k") {
    event.preventDefault();
    view?.browser?.move(event.key === "j" ? 1 : -1);
  } else if (event.key === "?") {
    keys();
  }
});
document.getElementById("skip").addEventListener("click", () => main.focus());
document.getElementById("help").addEventListener("click", keys);
document.getElementById("leave").addEventListener("click", () => { forgetToken(); history.replaceState(null, "", location.pathname); signIn(); });
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) start(); else show();
});
start();
