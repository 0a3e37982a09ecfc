// A table that reads one page at a time from the API, sorted and filtered there.

import { announce, el, nothing, problem, show, whenReleased } from "./dom.js";
import { get } from "./api.js";

/**
 * @typedef {object} Column
 * @property {string} label heading, with the unit
 * @property {(row: object) => (Node|string|Array)} cell content, or the whole cell
 * @property {string} [sort] key of the API; without one the column cannot be sorted
 * @property {boolean} [num] figures, set to the right
 * @property {boolean} [wrap] text that may take several lines
 * @property {boolean} [head] what the row is about
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

  /** What is shown. */
  rows = [];

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
    this.rows = rows;
    whenReleased(this.#place, () => this.#show(rows));
  }

  #show(rows) {
    const filtered = Object.values(this.#filters).some((value) => value !== "" && value != null);
    if (!rows.length && this.isFirstPage) {
      show(this.#place, filtered ? nothing("Nothing fits these filters.") : this.#options.empty());
      return;
    }
    const focused = this.#place.contains(document.activeElement)
      ? document.activeElement.dataset.key
      : null;
    show(this.#place, this.#table(rows), this.#pager(rows.length));
    if (focused) this.#place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  #table(rows) {
    return framed(this.#options.caption, this.#columns.map((column) => this.#head(column)), this.#columns, rows);
  }

  #head({ label, sort, num, help }) {
    if (!sort) return plainHead({ label, num, help });
    const sorted = { [sort]: "ascending", [`-${sort}`]: "descending" }[this.#sort];
    const turn = () => {
      this.#sort = this.#sort === `-${sort}` ? sort : `-${sort}`;
      this.#cursors = [null];
      announce(`Sorted by ${label}, ${this.#sort.startsWith("-") ? "falling" : "rising"}`);
      this.load();
    };
    const button = el("button", { type: "button", onclick: turn, "data-key": `sort-${sort}` }, label);
    return plainHead({ label: button, num, help }, { "aria-sort": sorted });
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
      el("button", { type: "button", class: "small", disabled: !enabled, onclick: go(to), "data-key": `page-${text}` }, text);
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

/** A table whose rows are all at hand; `look` may have a class, and the attributes of a row. */
export function plainTable(columns, rows, caption, look = {}) {
  return framed(caption, columns.map((column) => plainHead(column)), columns, rows, look);
}

/** A table that scrolls where it is too wide. */
function framed(caption, heads, columns, rows, { name = null, attributes = () => ({}) } = {}) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      { class: name },
      el("caption", { class: "visually-hidden" }, caption),
      el("thead", {}, el("tr", {}, heads)),
      el("tbody", {}, rows.map((row) => el("tr", attributes(row), columns.map((column) => cellOf(column, row))))),
    ),
  );
}

const plainHead = ({ label, num, help }, more = {}) =>
  label ? el("th", { scope: "col", class: num && "num", title: help, ...more }, label) : el("td"); // a corner heads nothing

function cellOf({ num, wrap, head, cell }, row) {
  const looks = [num && "num", wrap && "wrap"].filter(Boolean).join(" ") || null;
  const content = cell(row);
  if (content instanceof HTMLTableCellElement) return content;
  return head ? el("th", { scope: "row", class: looks }, content) : el("td", { class: looks }, content);
}
