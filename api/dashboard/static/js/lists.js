// A page that lists jobs: a table with filters above it, renewed by what happens.

import { byId, debounced, throttled } from "./dom.js";
import { follow } from "./events.js";
import { PagedTable } from "./table.js";

const AGAIN_MS = 10_000;

/**
 * Show a list.
 *
 * @param {string} path of the API.
 * @param {string} caption of the table.
 * @param {object[]} columns see table.js.
 * @param {(event: object) => boolean} concerns whether an event changes the list.
 * @param {object} fixed filters that no field is for.
 * @returns {PagedTable}
 */
export function listPage(path, caption, columns, concerns, fixed = {}) {
  const table = new PagedTable(byId("table"), path, columns, {
    sort: "-created_at",
    caption,
    empty: () => byId("empty").content.cloneNode(true),
  });
  const fields = [...document.querySelectorAll("[data-filter]")];
  const refilter = () =>
    table.filter({ ...fixed, ...Object.fromEntries(fields.map((f) => [f.dataset.filter, f.value.trim()])) });
  const given = new URLSearchParams(location.search);
  for (const field of fields) {
    if (given.has(field.dataset.filter)) field.value = given.get(field.dataset.filter);
    const isChoice = field.tagName === "SELECT";
    field.addEventListener(isChoice ? "change" : "input", isChoice ? refilter : debounced(refilter, 250));
  }
  // The browser's Back fills the fields as they were, but only once this script has run.
  addEventListener("pageshow", refilter, { once: true });
  const reload = throttled(() => table.load(), 1500);
  // Not all work says how far it is by an event.
  setInterval(() => !document.hidden && table.rows.some(({ status }) => status === "running") && reload(), AGAIN_MS);
  follow({}, Number(document.body.dataset.since), (event) => concerns(event) && reload(), reload);
  return table;
}
