// Weights and distances as tables whose cells are tinted.

import { el } from "../dom.js";
import { fixed } from "../format.js";
import { plainTable } from "../table.js";

/**
 * A table of numbers from 0 on, each cell the darker the nearer it is to `high`.
 *
 * @param {{name: string, values: number[]}[]} rows
 * @param {object} looks `corner` and `caption` in words, and `high`
 */
export function heatTable(rows, { corner, caption, high }) {
  const columns = rows[0].values.map((_, i) => ({ label: String(i + 1), cell: ({ values }) => cell(values[i], high) }));
  const about = { label: corner, head: true, cell: ({ name }) => name };
  return plainTable([about, ...columns], rows, caption, { name: "heat dense" });
}

function cell(value, high) {
  const share = high > 0 ? Math.min(1, Math.max(0, value / high)) : 0;
  const node = el("td", { "data-strong": share > 0.55 }, fixed(value, 2));
  node.style.background = `color-mix(in srgb, var(--accent) ${Math.round(100 * share)}%, var(--sunken))`;
  return node;
}
