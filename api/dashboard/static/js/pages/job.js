// One job of a kind that has no page of its own: what was asked for, what happened, its log.

import { get, tried } from "../api.js";
import { byId, el, show, throttled } from "../dom.js";
import { moment } from "../format.js";
import { jobFrame, showHead } from "../job.js";
import { bar, failed } from "../parts.js";

const reference = document.body.dataset.subject;
const path = `/jobs/${encodeURIComponent(reference)}`;

async function read() {
  const job = await get(path);
  byId("problem").replaceChildren();
  const about = `${job.kind.replaceAll("_", " ")} · asked for ${moment(job.created_at)}`;
  const progress = job.total ? bar(job.done / job.total, "Progress of the job") : null;
  showHead({ ...job, name: job.name ?? job.id }, { path, about, changed: readState }, progress);
  show(byId("spec"), el("pre", {}, JSON.stringify(job.resolved ?? job.requested, null, 2)));
}

function gone(error) {
  failed(error);
  byId("summary").replaceChildren();
}

const readState = throttled(() => tried(read, gone), 1000);
const watch = jobFrame(reference, readState);
await tried(read, gone);
watch(reference, readState, readState);
