// What a webhook was told, and what came of it; on top who is told, or that nobody is.

import { get, send, tried } from "../api.js";
import { byId, el, isOperator, problem, show } from "../dom.js";
import { duration, moment, whole } from "../format.js";
import { pageOf } from "../job.js";
import { listPage } from "../lists.js";
import { failed } from "../parts.js";

const AGAIN_MS = 5000;
const words = (text) => text.replaceAll("_", " ");

/** The job of a message; one that was deleted has no page. */
function subject(delivery) {
  const name = delivery.job_name ?? delivery.job_id;
  const shown = delivery.job_deleted
    ? el("span", { class: "name" }, name)
    : el("a", { class: "name", href: pageOf({ kind: delivery.kind, id: delivery.job_id }) }, name);
  const about = `${words(delivery.kind)} ${delivery.job_status}${delivery.job_deleted ? ", deleted since" : ""}`;
  return el("span", { class: "job-name" }, shown, el("small", { class: "muted" }, about));
}

function last(delivery) {
  const detail = delivery.detail ?? "not tried yet";
  return el("span", { class: "doing" }, el("span", {}, detail), el("small", { class: "muted" }, delivery.url));
}

function next(delivery) {
  if (delivery.status !== "pending") return "–";
  const left = new Date(delivery.next_attempt_at) - Date.now();
  return left > 1000 ? `in ${duration(left)}` : "now";
}

function again(delivery) {
  if (delivery.status !== "given_up" || !isOperator()) return "";
  const button = el("button", { type: "button", class: "small", "data-key": `again-${delivery.id}` }, "Try again");
  button.addEventListener("click", async () => {
    button.disabled = true;
    await tried(() => send("POST", `/webhook-deliveries/${delivery.id}/retry`), failed);
    await table.load();
  });
  return button;
}

const columns = [
  { label: "Job", cell: subject },
  { label: "Status", sort: "status", cell: ({ status }) => el("span", { class: "chip", "data-status": status }, words(status)) },
  { label: "Attempts", sort: "num_attempts", num: true, cell: (delivery) => whole(delivery.num_attempts) },
  { label: "What came of the last one", wrap: true, cell: last },
  { label: "Next one", sort: "next_attempt_at", cell: next },
  { label: "Ended", sort: "created_at", cell: (delivery) => moment(delivery.created_at), help: "When the job ended" },
  { label: "", cell: again },
];

async function showReceivers() {
  const { urls } = await get("/webhook");
  const sentence = urls.length
    ? el("p", {}, "Told are: ", urls.flatMap((url, i) => [i ? ", " : "", el("code", {}, url)]))
    : el(
        "p", { class: "notice" },
        "No webhook is set up: nobody is told when a job ends. To have a server of yours told, set ",
        el("code", {}, "KDNAS_WEBHOOK_URL"), " and ", el("code", {}, "KDNAS_WEBHOOK_SECRET"),
        " where the coordinator runs, and start it again.",
      );
  show(byId("receivers"), sentence);
}

const readReceivers = () => tried(showReceivers, (error) => show(byId("receivers"), problem(error, readReceivers)));

const isNews = ({ type, kind }) => type.startsWith("webhook_") || type === `${kind}_status`;
const table = listPage("/webhook-deliveries", "Webhook deliveries", columns, isNews);
readReceivers();
// Attempts that fail are no events, nor is the start of a coordinator.
setInterval(() => {
  if (document.hidden) return;
  table.load();
  readReceivers();
}, AGAIN_MS);
