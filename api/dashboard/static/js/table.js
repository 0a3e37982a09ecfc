// A table that reads one page at a time from the API, sorted and filtered there.

import { announce, el, problem, show } from "./dom.js";
import { get } from "./api.js";

/**
 * @typedef {object} Column
 * @property {string} label heading, with the unit
 * @property {(row: object) => (Node|string)} cell content
 * @property {string} [sort] key of the API; without one the column cannot be sorted
 * @property {boolean} [num] figures, set to the right
 * @property {string} [help] what the figures are, for who points at the heading
 */

export class PagedTable {
  #place;
  #columns;
  #path;
  #options;
  #sort;
  #filters = {};
  #cursors = [null]; // of the pages up to the present one
  #next = null;
  #asked = 0;

  constructor(place, path, columns, options) {
    this.#place = place;
    this.#path = path;
    this.#columns = columns;
    this.#options = { limit: 50, caption: "", empty: () => "Nothing here yet.", ...options };
    this.#sort = this.#options.sort;
    show(place, ...Array.from({ length: 5 }, () => el("div", { class: "skeleton" })));
  }

  /** Show the first page of other rows. */
  filter(filters) {
    this.#filters = filters;
    this.#cursors = [null];
    return this.load();
  }

  /** Read the present page again; the present rows stay until the new ones are there. */
  async load() {
    const asked = ++this.#asked;
    this.#place.setAttribute("aria-busy", "true");
    try {
      const page = await get(this.#path, {
        ...this.#filters,
        sort: this.#sort,
        limit: this.#options.limit,
        cursor: this.#cursors.at(-1),
      });
      if (asked !== this.#asked) return; // a later question is under way
      this.#next = page.next_cursor;
      this.#render(page.items);
    } catch (error) {
      if (asked === this.#asked) show(this.#place, problem(error, () => this.load()));
    } finally {
      if (asked === this.#asked) this.#place.removeAttribute("aria-busy");
    }
  }

  get isFirstPage() {
    return this.#cursors.length === 1;
  }

  #render(rows) {
    const filtered = Object.values(this.#filters).some((value) => value !== "" && value != null);
    if (!rows.length && this.isFirstPage) {
      const nothing = filtered
        ? el("div", { class: "empty slim" }, "Nothing fits these filters.")
        : this.#options.empty();
      show(this.#place, nothing);
      return;
    }
    const focused = this.#place.contains(document.activeElement)
      ? document.activeElement.dataset.key
      : null;
    show(this.#place, this.#table(rows), this.#pager(rows.length));
    if (focused) this.#place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  #table(rows) {
    const heads = this.#columns.map((column) => this.#head(column));
    return el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": this.#options.caption },
      el(
        "table",
        {},
        el("caption", { class: "visually-hidden" }, this.#options.caption),
        el("thead", {}, el("tr", {}, heads)),
        el("tbody", {}, rows.map((row) => tableRow(this.#columns, row))),
      ),
    );
  }

  #head({ label, sort, num, help }) {
    const attributes = { scope: "col", class: num && "num", title: help };
    if (!sort) return el("th", attributes, label);
    if (this.#sort === sort) attributes["aria-sort"] = "ascending";
    if (this.#sort === `-${sort}`) attributes["aria-sort"] = "descending";
    const turn = () => {
      this.#sort = this.#sort === `-${sort}` ? sort : `-${sort}`;
      this.#cursors = [null];
      announce(`Sorted by ${label}, ${this.#sort.startsWith("-") ? "falling" : "rising"}`);
      this.load();
    };
    const button = el("button", { type: "button", onclick: turn, "data-key": `sort-${sort}` }, label);
    return el("th", attributes, button);
  }

  #pager(count) {
    if (this.isFirstPage && this.#next === null) return null;
    const cursors = this.#cursors;
    const first = (cursors.length - 1) * this.#options.limit + 1;
    const go = (to) => () => {
      if (this.#cursors !== cursors) return; // another page or other rows are on their way
      this.#cursors = to;
      this.load();
    };
    const button = (text, enabled, to) =>
      el(
        "button",
        {
          type: "button",
          class: "small",
          disabled: !enabled,
          onclick: go(to),
          "data-key": `page-${text}`,
        },
        text,
      );
    return el(
      "div",
      { class: "pager" },
      el("span", { class: "grow" }, `Rows ${first} to ${first + count - 1}`),
      button("First", !this.isFirstPage, [null]),
      button("Previous", !this.isFirstPage, cursors.slice(0, -1)),
      button("Next", this.#next !== null, [...cursors, this.#next]),
    );
  }
}

/** A table whose rows are all at hand. */
export function plainTable(columns, rows, caption) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "visually-hidden" }, caption),
      el(
        "thead",
        {},
        el("tr", {}, columns.map((c) => el("th", { scope: "col", class: c.num && "num", title: c.help }, c.label))),
      ),
      el("tbody", {}, rows.map((row) => tableRow(columns, row))),
    ),
  );
}

function tableRow(columns, row) {
  return el(
    "tr",
    {},
    columns.map((c) =>
      el("td", { class: [c.num && "num", c.wrap && "wrap"].filter(Boolean).join(" ") || null }, c.cell(row)),
    ),
  );
}
