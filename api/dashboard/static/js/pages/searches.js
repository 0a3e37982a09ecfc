// The list of searches.

import { byId, el } from "../dom.js";
import { moment, ms, whole } from "../format.js";
import { listPage } from "../lists.js";
import { bar, chip, kindOf } from "../parts.js";
import { bestOf, foundBy } from "../search/found.js";

const MOST_COMPARED = 4;
const chosen = new Set();

const link = (row) => el("a", { class: "name", href: `/searches/${row.id}` }, row.name);

function progress(row) {
  const share = row.num_episodes ? row.num_episodes_finished / row.num_episodes : 0;
  const text = `${whole(row.num_episodes_finished)} / ${whole(row.num_episodes)} episodes`;
  return el("span", {}, bar(share, `Progress of ${row.name}`, true), text);
}

function tick(row) {
  const box = el("input", {
    type: "checkbox", "aria-label": `Compare ${row.name}`, checked: chosen.has(row.id),
    "data-key": `tick-${row.id}`,
  });
  box.addEventListener("change", () => {
    if (box.checked && chosen.size >= MOST_COMPARED) box.checked = false;
    else if (box.checked) chosen.add(row.id);
    else chosen.delete(row.id);
    offerComparison();
  });
  return box;
}

function offerComparison() {
  const button = byId("compare");
  const enough = chosen.size >= 2;
  button.textContent = enough ? `Compare ${chosen.size}` : "Compare";
  button.setAttribute("aria-disabled", String(!enough));
  if (enough) button.href = `/compare?${new URLSearchParams([...chosen].map((id) => ["search", id]))}`;
  else button.removeAttribute("href");
  button.title = enough ? "" : "Tick two to four searches";
}

const columns = [
  { label: el("span", { class: "visually-hidden" }, "Compare"), cell: tick },
  { label: "Name", sort: "name", cell: link },
  { label: "Status", sort: "status", cell: (row) => chip(row.status) },
  { label: "Progress", cell: progress },
  { label: "Found", num: true, cell: foundBy },
  { label: "Architecture", cell: (row) => bestOf(row)?.architecture ?? "–" },
  { label: "Latency", num: true, cell: (row) => ms(bestOf(row)?.latency_ms) },
  { label: "Created", sort: "created_at", cell: (row) => moment(row.created_at) },
  { label: "Ended", sort: "finished_at", cell: (row) => moment(row.finished_at) },
];

offerComparison();
listPage("/searches", "Searches", columns, (event) => kindOf(event) === "search");
