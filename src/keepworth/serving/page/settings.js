// What the server runs with, and who may do what.
import { call, get, post } from "./api.js";
import { asked, card, code, empty, make, news, problem, said, table, when } from "./dom.js";
import { settings } from "./runs.js";

const ROLES = ["read", "write", "reward", "admin"];

export function open(session) {
  const element = make("div", {}, make("h1", {}, "Settings"));
  const show = async () => {
    const [values, tokens] = await Promise.all([get("/settings"), get("/tokens")]);
    element.replaceChildren(make("h1", {}, "Settings"),
      make("h2", {}, "Tokens"), listed(tokens.tokens, show), adding(session, show),
      make("h2", {}, "What this server runs with"), make("div", { class: "card" }, settings(values)),
      make("p", { class: "note" }, "These are set where the server is started: ", code("keepworth serve --help"), "."));
  };
  return { element, show };
}

function listed(tokens, again) {
  if (!tokens.length) return make("div", { class: "card" }, empty(make("p", {}, "There are no tokens but the one that the server printed.")));
  return table("Tokens", [["id", false], ["name", false], ["tenant", false], ["bound to", false], ["roles", false], ["made", false], ["ends", false], ["", false]],
    tokens.map(each => [code(each.id), each.name && said(each.name), each.tenant && said(each.tenant), said([each.user_id, each.agent_id].filter(Boolean).join(", ") || "nobody"),
      each.roles.join(", "), when(each.made), each.until ? when(each.until) : "never",
      make("button", { type: "button", class: "plain", "aria-label": `Remove ${each.id}`, click: () => removed(each, again) }, "Remove")]));
}

async function removed(token, again) {
  const yes = await asked(`Remove the token ${token.id}?`, make("p", {}, "Whoever uses it is refused at once. It cannot be brought back."), "Remove it");
  if (!yes) return;
  try {
    await call("DELETE", `/tokens/${encodeURIComponent(token.id)}`);
    news(make("p", {}, `The token ${token.id} is removed.`));
    await again();
  } catch (error) {
    news(problem(error));
  }
}

function adding(session, again) {
  const field = (name, label, attributes = {}) => make("label", {}, label, make("input", { name, autocomplete: "off", ...attributes }));
  const roles = ROLES.filter(each => session.can(each));
  const answer = make("div", { role: "status" });
  const form = make("form", { submit: async event => {
    event.preventDefault();
    const given = new FormData(form), body = { roles: given.getAll("roles") };
    for (const name of ["name", "user_id", "agent_id"]) if (given.get(name)?.trim()) body[name] = given.get(name).trim();
    if (given.get("days")) body.days = Number(given.get("days"));
    try {
      const made = await post("/tokens", body);
      form.reset();
      await again();
      news(make("p", {}, `The token ${made.id}, which is shown once:`), make("p", {}, code(made.token)),
        make("p", {}, "The page with it: ", code(`${location.origin}${location.pathname}#token=${made.token}`)));
    } catch (error) {
      answer.replaceChildren(problem(error));
    }
  } },
  make("div", { class: "filters" }, field("name", "Name"), session.user_id ? null : field("user_id", "Person"), session.agent_id ? null : field("agent_id", "Agent"),
    field("days", "Days until it ends", { type: "number", min: 1, max: 100000, placeholder: "never" })),
  make("fieldset", {}, make("legend", {}, "Roles"), roles.map(each => make("label", { class: "check" }, make("input", { type: "checkbox", name: "roles", value: each, checked: each !== "admin" }), each))),
  make("button", { type: "submit", class: "main" }, "Make a token"), answer);
  return card("A new token", form);
}
