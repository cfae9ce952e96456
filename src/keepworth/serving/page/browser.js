// A list on the left and one of its rows in full on the right; on a narrow screen one of the two. Memory, episodes and runs are such lists.
import { empty, make, problem } from "./dom.js";

export class Browser {
  // label: what is listed. link: id -> address. page: (after) -> {rows, next}, a page of rows, each with an id. row: a row -> what stands
  // in its line. detail: id -> an element with all of it. nothing: what is said where there are no rows.
  constructor({ label, link, page, row, detail, nothing }) {
    Object.assign(this, { link, page, row, detail, nothing });
    this.list = make("ul", { class: "rows-list" });
    this.more = make("button", { type: "button", class: "more", hidden: true, click: () => this.load(this.next) }, "Show more");
    this.side = make("section", { class: "detail", "aria-label": "Details", tabindex: "-1" });
    this.rows = make("nav", { class: "rows", "aria-label": label }, this.list, this.more);
    this.element = make("div", { class: "browser card" }, this.rows, this.side);
    this.asked = 0;
    this.opened = "";
  }

  // The page after `after`; "" begins anew. Of two that are under way the later one counts.
  async load(after = "") {
    const turn = ++this.asked;
    this.element.setAttribute("aria-busy", "true");
    if (!this.list.children.length && !this.rows.querySelector(".empty")) this.rows.append(empty("Loading …"));
    try {
      const { rows, next } = await this.page(after);
      if (turn !== this.asked) return;
      if (!after) {
        this.list.replaceChildren();
        this.rows.scrollTop = 0;
      }
      const first = this.list.children.length;
      this.list.append(...rows.map(each => make("li", {}, this.line(each))));
      this.next = next;
      this.more.hidden = !next;
      this.rows.querySelector(".empty")?.remove();
      if (!this.list.children.length) this.rows.append(this.nothing());
      if (after && document.activeElement === document.body) this.links()[first]?.focus();
      this.mark();
    } catch (error) {
      if (turn !== this.asked) return;
      this.rows.querySelector(".empty")?.remove();
      this.list.replaceChildren(make("li", {}, problem(error)));
      this.more.hidden = true;
    } finally {
      if (turn === this.asked) this.element.removeAttribute("aria-busy");
    }
  }

  line(each) {
    return make("a", { href: this.link(each.id), "data-id": each.id }, this.row(each));
  }

  async open(id, focus = true) {
    this.opened = id;
    this.element.classList.toggle("open", Boolean(id));
    this.mark();
    if (!id) {
      this.side.removeAttribute("aria-busy");
      this.side.replaceChildren(empty(this.list.children.length ? "Choose a row to see all of it." : ""));
      return;
    }
    const back = make("a", { class: "back", href: this.link("") }, "Back to the list");
    this.side.setAttribute("aria-busy", "true");
    const found = await this.detail(id).catch(problem);
    if (this.opened !== id) return;
    this.side.removeAttribute("aria-busy");
    this.side.replaceChildren(back, found);
    this.side.scrollTop = 0;
    if (focus) this.side.focus({ preventScroll: true });
  }

  links() { return [...this.list.querySelectorAll("a[data-id]")]; }

  mark() {
    for (const link of this.links()) {
      if (link.dataset.id === this.opened) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  // j and k: the next row, or the one before.
  async move(by) {
    const before = this.links();
    const at = before.findIndex(each => each === document.activeElement);
    const from = at >= 0 ? at : before.findIndex(each => each.dataset.id === this.opened);
    if (from + by >= before.length && !this.more.hidden) await this.load(this.next);
    const links = this.links();
    links[Math.min(Math.max(0, from + by), links.length - 1)]?.focus();
  }

  // Escape: from the details back to the row.
  leave() {
    if (!this.opened) return false;
    const link = this.links().find(each => each.dataset.id === this.opened);
    location.hash = this.link("");
    link?.focus();
    return true;
  }
}
