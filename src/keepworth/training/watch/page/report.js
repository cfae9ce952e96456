// What a report alone has: its charts and tables wired up, and the episode browser. It stands behind `parts.js` in one module.

for (const figure of document.querySelectorAll("figure.chart")) pointed(figure, JSON.parse(figure.querySelector("script").textContent));
for (const table of document.querySelectorAll("table.sortable")) sorted(table);

const browser = document.getElementById("browser");
if (browser) {
  // Texts repeat within a group (the same memories for every sample), so episodes refer to them by number.
  const { texts, episodes } = JSON.parse(document.getElementById("episodes").textContent);
  const list = browser.querySelector(".rows"), detail = browser.querySelector(".detail");
  const controls = Object.fromEntries([...document.querySelectorAll("[data-filter]")].map(each => [each.dataset.filter, each]));
  const colour = reward => reward >= 0.5 ? "good" : reward > 0 ? "middling" : "bad";
  let found = [], visible = 0, selected = null;
  const PAGE = 120, unit = browser.dataset.unit ?? "episodes";

  function fill() {
    const words = controls.words.value.toLowerCase();
    found = episodes.filter(each =>
      ["step", "arm", "role"].every(name => !controls[name]?.value || String(each[name]) === controls[name].value) &&
      (!words || `${texts[each.question]} ${each.answer} ${each.expected.join(" ")}`.toLowerCase().includes(words)));
    if (controls.order.value === "worst") found.sort((a, b) => a.reward - b.reward);
    if (controls.order.value === "best") found.sort((a, b) => b.reward - a.reward);
    if (controls.order.value === "late") found.sort((a, b) => b.step - a.step);
    list.replaceChildren();
    visible = 0;
    document.querySelector(".count").textContent = `${found.length.toLocaleString("en")} of ${episodes.length.toLocaleString("en")} ${unit}`;
    if (found.length) { more(); select(0); }
    else { list.append(element("div", "empty", `None of the ${unit} fits.`)); detail.replaceChildren(); }
  }

  function more() {
    list.querySelector(".more")?.remove();
    const until = Math.min(found.length, visible + PAGE);
    for (; visible < until; visible++) {
      const each = found[visible], index = visible;
      const row = element("button");
      row.append(element("span", `reward ${colour(each.reward)}`, fixed(each.reward, 2)), element("span", "question", texts[each.question]),
        element("span", "where", each.where ?? `step ${each.step} · ${each.arm} · ${each.role}`));
      row.addEventListener("click", () => select(index));
      list.append(row);
    }
    if (visible < found.length) {
      const next = element("button", "more", `Show more (${(found.length - visible).toLocaleString("en")} left)`);
      next.addEventListener("click", more);
      list.append(next);
    }
  }

  function select(index) {
    selected = index;
    [...list.children].forEach((row, at) => row.setAttribute("aria-current", at === index));
    const each = found[index];
    const meta = each.where ? `${each.where} · ${each.task}` : `step ${each.step} · ${each.arm} · ${each.role} · ${each.task} · ${each.stop}`;
    const pair = element("div", "pair");
    for (const [title, text, name] of [["Answer", each.answer || "(nothing)", colour(each.reward)], ["Expected", each.expected.join("\n") || "(no answer key)", ""]]) {
      const half = element("div", name);
      half.append(element("small", "", title), text);
      pair.append(half);
    }
    detail.replaceChildren(element("div", "meta", meta), element("div", "ask", texts[each.question]), pair);
    const terms = element("div", "terms");
    terms.append(element("span", `reward ${colour(each.reward)}`, `total ${fixed(each.reward, 3)}`));
    for (const [name, value, weight] of each.terms) terms.append(element("span", "", `${name} ${fixed(value, 3)}${weight === 1 ? "" : ` × ${weight}`}`));
    detail.append(element("h3", "", "Reward"), terms);
    if (each.operations.length) {
      detail.append(element("h3", "", "Operations"));
      for (const [kind, targets, text, status, outcome] of each.operations) {
        const line = element("div", "operation");
        line.append(element("b", "", kind), ` ${targets.join(", ")} ${text} `, element("em", "", `${status}: ${outcome}`));
        detail.append(line);
      }
    }
    detail.append(element("h3", "", each.shown.length ? "Memories shown" : "No memories were shown"));
    for (const [id, score, text] of each.shown) {
      const line = element("div", "memory"), body = element("div");
      body.append(marked(texts[text], each.expected), element("div", "id", id));
      line.append(element("div", "score", score ? fixed(score, 3) : ""), body);
      detail.append(line);
    }
    for (const error of each.errors) detail.append(element("div", "bad", error));
    detail.scrollTop = 0;
  }

  // The expected answer, where a memory holds it word for word.
  function marked(text, expected) {
    const body = element("div");
    const answer = expected.find(each => each && text.toLowerCase().includes(each.toLowerCase()));
    if (!answer) { body.textContent = text; return body; }
    const at = text.toLowerCase().indexOf(answer.toLowerCase());
    body.append(text.slice(0, at), element("mark", "", text.slice(at, at + answer.length)), text.slice(at + answer.length));
    return body;
  }

  list.addEventListener("keydown", event => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || selected === null) return;
    event.preventDefault();
    const next = Math.min(Math.max(0, selected + move), visible - 1);
    select(next);
    list.children[next].focus();
  });
  for (const control of Object.values(controls)) control.addEventListener("input", fill);
  fill();
}
