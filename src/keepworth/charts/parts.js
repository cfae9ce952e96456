// What the pages of this project share: elements with text in them, the numbers under the pointer in a chart, tables that are sorted.
// The page over a memory imports it; a report, which is one file, has it written in front of its own script.

// What is no finite number comes as a text.
export const fixed = (value, digits) => typeof value === "number" ? value.toFixed(digits) : String(value);
export const shown = value => Number.isInteger(value) ? String(value) : fixed(value, Math.abs(value) >= 100 ? 0 : 3);

export function element(tag, name, text) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  return made;
}

// Shows the numbers of a chart under the pointer. data: as `charts.chart` gives it.
export function pointed(figure, data) {
  const svg = figure.querySelector("svg");
  const cursor = svg.querySelector(".cursor");
  const steps = [...new Set(data.series.flatMap(series => series.steps))].sort((a, b) => a - b);
  const [left, right, first, last] = data.x;
  let tip = null;
  const leave = () => { tip?.remove(); tip = null; cursor.style.visibility = "hidden"; };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const at = first + ((event.clientX - box.left) * scale - left) / (right - left) * (last - first);
    const step = steps.reduce((best, each) => Math.abs(each - at) < Math.abs(best - at) ? each : best, steps[0]);
    const x = left + (step - first) / Math.max(1, last - first) * (right - left);
    for (const [name, value] of [["x1", x], ["x2", x], ["y1", data.y[0]], ["y2", data.y[1]]]) cursor.setAttribute(name, value);
    cursor.style.visibility = "visible";
    if (!tip) figure.append(tip = element("div", "tip"));
    tip.replaceChildren(element("b", "", `${data.along} ${step}`));
    for (const series of data.series) {
      const index = series.steps.indexOf(step);
      if (index < 0) continue;
      const line = element("div");
      const chip = element("i");
      chip.style.background = `var(--c${series.colour})`;
      const band = series.low.length ? `  [${shown(series.low[index])}, ${shown(series.high[index])}]` : "";
      line.append(chip, `${series.label}  ${shown(series.values[index])}${band}`);
      tip.append(line);
    }
    const place = (x / scale) + (box.left - figure.getBoundingClientRect().left);
    const wide = tip.offsetWidth;
    tip.style.left = `${place + wide + 24 > figure.clientWidth ? place - wide - 12 : place + 12}px`;
    tip.style.top = `${svg.offsetTop + 8}px`;
  });
  svg.addEventListener("pointerleave", leave);
}

// Tables that can be sorted by a column: numbers by size, what is missing last.
export function sorted(table) {
  const body = table.tBodies[0];
  for (const button of table.querySelectorAll("button[data-sort]")) {
    button.addEventListener("click", () => {
      const head = button.closest("th"), place = Number(button.dataset.sort);
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => row.cells[place].dataset.value, numeric = head.classList.contains("number");
      const order = (a, b) => {
        if (!key(a) || !key(b)) return key(a) ? -1 : key(b) ? 1 : 0;
        return (numeric ? Number(key(b)) - Number(key(a)) : key(a).localeCompare(key(b)) * -1) * (down ? 1 : -1);
      };
      body.append(...[...body.rows].sort(order));
    });
  }
}
