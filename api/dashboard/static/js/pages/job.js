// One job of a kind that has no page of its own: what was asked for, what happened, its log.

import { ApiError, get } from "../api.js";
import { byId, el, problem, show, throttled } from "../dom.js";
import { follow } from "../events.js";
import { moment } from "../format.js";
import { jobFrame } from "../job.js";
import { EventLog, actionButtons, bar, chip } from "../parts.js";

const reference = document.body.dataset.subject;
const path = `/jobs/${encodeURIComponent(reference)}`;
const log = new EventLog(byId("log").querySelector("[data-log]"));
const standing = byId("job"); // stays when the rest is shown anew
const failed = (error) => show(byId("problem"), problem(error));

async function read() {
  try {
    const job = await get(path);
    const title = job.name ?? job.id;
    document.title = `${title} · kdnas`;
    byId("problem").replaceChildren();
    show(
      byId("summary"),
      el(
        "div",
        { class: "head" },
        el(
          "div",
          {},
          el("div", { class: "title" }, el("h1", {}, title), chip(job.status)),
          el("p", { class: "muted" }, `${job.kind.replaceAll("_", " ")} · asked for ${moment(job.created_at)}`),
        ),
        el("div", { class: "actions" }, actionButtons(path, job.status, readState, failed)),
      ),
      standing,
      job.error && el("p", { class: "notice bad", role: "alert" }, job.error),
      job.total ? bar(job.done / job.total, "Progress of the job") : null,
    );
    show(byId("spec"), el("pre", {}, JSON.stringify(job.resolved ?? job.requested, null, 2)));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    failed(error);
    byId("summary").replaceChildren();
  }
}

const readState = throttled(read, 1000);
const frame = jobFrame(reference, readState);
await read();
follow(
  { job: reference },
  Number(document.body.dataset.logSince),
  (event, isNew) => {
    log.add(event);
    if (!isNew) return;
    readState();
    frame.happened();
  },
  readState,
);
