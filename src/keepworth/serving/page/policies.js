// The policy that chooses what is shown, what others would have earned, and the change from one to another.
import { get, post } from "./api.js";
import { asked, card, code, decimal, make, news, number, pill, problem, refill } from "./dom.js";

const METHODS = [["snips", "by whole choices"], ["items", "by single items"]];

export function open() {
  const element = make("div", {}, make("h1", {}, "Policies"));
  const show = async () => {
    const found = await get("/policy");
    refill(element, make("h1", {}, "Policies"), force(found, show), found.policy ? compare(found, show) : null);
  };
  return { element, show };
}

function force({ policy, promoted }, again) {
  if (!policy) {
    return card("In force", make("p", {}, "This memory was opened without a policy, so nothing is learned from rewards. Start the server with ", code("--policy default"), "."));
  }
  const back = promoted.length ? make("button", { type: "button", click: async () => {
    const yes = await asked("Go back to the policy before?", make("p", {}, code(policy), " stops choosing. Nothing that was learned is lost."), "Go back", `Keep ${policy}`);
    if (yes) await changed("/policy/demote", undefined, again);
  } }, "Go back to the one before") : null;
  return card("In force", make("p", {}, make("b", {}, policy), " ", pill(promoted.length ? "promoted" : "as the server was started")),
    make("p", { class: "note" }, promoted.length ? `Promoted in this order: ${promoted.join(", ")}.` : "No other policy was promoted."), back);
}

function compare({ policy, known }, again) {
  const choice = make("select", { name: "policy" }, known.map(each => make("option", { value: each, selected: each === policy }, each)));
  const method = make("select", { name: "method" }, METHODS.map(([value, text]) => make("option", { value }, `${value}: ${text}`)));
  const answer = make("div", { role: "status" });
  const form = make("form", { class: "estimator", submit: async event => {
    event.preventDefault();
    answer.replaceChildren(make("p", { class: "note" }, "Reading the log ..."));
    try {
      const found = await get("/policy/estimate", { policy: choice.value, method: method.value });
      refill(answer, estimate(choice.value, found), choice.value === policy ? null : promote(choice.value, policy, again));
    } catch (error) {
      answer.replaceChildren(problem(error));
    }
  } },
  make("label", {}, "Policy", choice), make("label", {}, "Estimator", method), make("button", { type: "submit", class: "main" }, "Estimate"));
  const about = "snips (self-normalised inverse propensity scoring) counts each choice in the log by how likely the other policy makes it, divided by "
    + "how likely it was. items weighs each item shown by itself.";
  return card("What another policy would have earned",
    make("p", { class: "note" }, "The log says what was shown and how likely that was. From that follows what mean reward another policy would have had on the same questions."),
    make("p", { class: "note" }, about), form, answer);
}

function estimate(name, found) {
  return make("p", {}, code(name), ": mean reward ", make("b", {}, decimal(found.value)), ", 95 % interval ", `${decimal(found.low)} to ${decimal(found.high)}, `,
    `from ${number(found.n)} choices that weigh as much as ${Number(found.effective).toFixed(0)}.`);
}

function promote(name, before, again) {
  return make("button", { type: "button", click: async () => {
    const yes = await asked(`Let ${name} choose?`, make("p", {}, "It learns from the whole log and chooses from now on, for everybody. ", code(before), " comes back with one click."), "Promote it", `Keep ${before}`);
    if (yes) await changed("/policy/promote", { policy: name }, again);
  } }, `Promote ${name}`);
}

async function changed(path, body, again) {
  try {
    const done = await post(path, body);
    news(make("p", {}, code(done.policy), " chooses from now on."));
    await again();
  } catch (error) {
    news(problem(error));
  }
}

