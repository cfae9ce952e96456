// A chart as the server draws it (`charts.as_elements`), with its numbers under the pointer.
import { drawn, make } from "./dom.js";
import { pointed } from "./parts.js";

export function chart({ title, unit, wide, svg, data }) {
  const key = ({ label, colour }) => {
    const chip = make("i");
    chip.style.background = `var(--c${colour})`;
    return make("span", { class: "key" }, chip, label);
  };
  const figure = make("figure", { class: wide ? "chart wide" : "chart" },
    make("figcaption", {}, make("b", {}, title), make("small", {}, unit)),
    make("div", { class: "legend" }, data.series.length > 1 ? data.series.map(key) : null), drawn(svg));
  pointed(figure, data);
  return figure;
}
