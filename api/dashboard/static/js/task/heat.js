// Weights and distances as tables whose cells are tinted.

import { el } from "../dom.js";
import { fixed } from "../format.js";
import { plainTable } from "../table.js";

/**
 * A table of numbers, each cell the darker the nearer it is to `high`.
 *
 * @param {{name: string, values: number[]}[]} rows
 * @param {object} looks `corner` and `caption` in words, `low` and `high` ends of the tint
 */
export function heatTable(rows, { corner, caption, low = 0, high = Math.max(...rows.flatMap(({ values }) => values)) }) {
  const columns = rows[0].values.map((_, i) => ({ label: String(i + 1), cell: ({ values }) => cell(values[i], low, high) }));
  const about = { label: corner, head: true, cell: ({ name }) => name };
  return plainTable([about, ...columns], rows, caption, { name: "heat dense" });
}

function cell(value, low, high) {
  const share = high === low ? 0 : Math.min(1, Math.max(0, (value - low) / (high - low)));
  const node = el("td", { "data-strong": share > 0.55 }, fixed(value, 2));
  node.style.background = `color-mix(in srgb, var(--accent) ${Math.round(100 * share)}%, var(--sunken))`;
  return node;
}
