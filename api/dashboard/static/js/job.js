// What the page of every job shows alike: at its head one line that says what it does or waits for
// and since when; its name, note and labels, which an operator may change; its log; deleting it.

import { ApiError, get, send } from "./api.js";
import { announce, byId, el, isOperator, problem, show, throttled } from "./dom.js";
import { duration, plural, whole } from "./format.js";

const TICK_MS = 1000;
const AGAIN_MS = 5000;
const OVER = ["succeeded", "failed", "cancelled"];

const since = (text) => duration(Date.now() - new Date(text));

/** What a job does or waits for, since when, how much is done, and how long it will take yet. */
export function standingOf(job, counted = true) {
  if (OVER.includes(job.status)) return endOf(job);
  const words = [job.standing];
  if (job.phase_since) words.push(`for ${since(job.phase_since)}`);
  if (counted && job.status === "running" && job.total) words.push(`${whole(job.done)} of ${whole(job.total)}`);
  if (job.remaining_seconds != null) words.push(`about ${duration(1000 * job.remaining_seconds)} left`);
  return words.join(" · ");
}

function endOf(job) {
  if (!job.started_at || !job.finished_at) return job.status;
  return `${job.status} after ${duration(new Date(job.finished_at) - new Date(job.started_at))}`;
}

export const labelsOf = (job) => job.labels.map((text) => el("a", { class: "label", href: `/jobs?${new URLSearchParams({ label: text })}` }, text));

export const pageOf = (job) => {
  const path = JSON.parse(document.body.dataset.kinds)[job.kind];
  return path ? `${path}/${job.id}` : `/jobs/${job.id}`;
};

/** The line at the head of a job, and what may be changed of it. */
export class JobHead {
  #job = null;
  #changed;
  #reference;
  #place;

  /** `changed(job)` is called after something was changed here. */
  constructor(place, reference, changed = () => {}) {
    this.#place = place;
    this.#reference = reference;
    this.#changed = changed;
    this.load = throttled(() => this.#read(), 1000);
    setInterval(() => this.#tick(), TICK_MS);
    setInterval(() => !document.hidden && this.#job && !OVER.includes(this.#job.status) && this.load(), AGAIN_MS);
    this.load();
  }

  get job() {
    return this.#job;
  }

  async #read() {
    try {
      this.#job = await get(`/jobs/${encodeURIComponent(this.#reference)}`);
      this.#reference = this.#job.id;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      return; // the page says so already
    }
    this.#show();
  }

  #show() {
    const job = this.#job;
    const buttons = isOperator()
      ? [
          el("button", { type: "button", class: "quiet small", onclick: () => this.#edit(), "data-job": "edit" }, "Name, note, labels"),
          job.status === "running" ? null : el("button", { type: "button", class: "quiet small danger", onclick: () => askToDelete(job), "data-job": "delete" }, "Delete"),
        ]
      : [];
    const focused = this.#place.contains(document.activeElement) ? document.activeElement.dataset.job : null;
    show(
      this.#place,
      el("p", { class: "standing", "data-status": job.status }, el("span", { "data-standing": true }, standingOf(job)), job.worker && el("span", { class: "muted" }, ` · on ${job.worker}`)),
      el("div", { class: "job-about" }, job.note && el("span", { class: "job-note" }, job.note), labelsOf(job), buttons),
    );
    if (focused) this.#place.querySelector(`[data-job="${focused}"]`)?.focus();
  }

  #tick() {
    const line = this.#place.querySelector("[data-standing]");
    if (line) line.textContent = standingOf(this.#job);
  }

  #edit() {
    editJob(this.#job, (job) => {
      this.#job = { ...this.#job, ...job };
      this.load();
      this.#changed(job);
    });
  }
}

/** Ask for a job's name, note and labels; `done` is told the job as it is then. */
export function editJob(job, done) {
  const field = (label, name, value, help) =>
    el("div", { class: "field" }, el("label", { for: `job-${name}` }, label), el("input", { id: `job-${name}`, name, value, autocomplete: "off" }), help && el("p", { class: "help" }, help));
  const wrong = el("div", {});
  const form = el(
    "form",
    { method: "dialog", class: "spec" },
    el("h2", {}, job.name ?? job.id),
    job.name === null ? null : field("Name", "name", job.name),
    field("Note", "note", job.note ?? ""),
    field("Labels", "labels", job.labels.join(" "), "Words with a space between."),
    wrong,
    el("div", { class: "submit" }, el("button", { class: "primary", value: "save" }, "Save"), el("button", { type: "button", onclick: () => dialog.close() }, "Leave as it is")),
  );
  const dialog = el("dialog", { "aria-label": "Name, note and labels" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = new FormData(form);
    const change = { note: given.get("note"), labels: given.get("labels").split(/\s+/).filter(Boolean) };
    if (given.get("name") && given.get("name") !== job.name) change.name = given.get("name");
    try {
      done(await send("PATCH", `/jobs/${job.id}`, change));
      dialog.close();
      announce("Saved");
    } catch (error) {
      show(wrong, problem(error));
    }
  });
  open(dialog);
}

/** Ask whether to delete a job for good; what stands on it is named by the service. */
export function askToDelete(job, done = () => location.assign("/jobs")) {
  const said = el("div", {});
  let force = false;
  const button = el("button", { type: "button", class: "danger" }, "Delete for good");
  button.addEventListener("click", async () => {
    try {
      await send("DELETE", `/jobs/${job.id}${force ? "?force=true" : ""}`, {});
      dialog.close();
      done();
    } catch (error) {
      force = error.status === 409 && job.status !== "running";
      if (force) button.textContent = "Delete it all the same";
      show(said, problem(error));
    }
  });
  const parts = job.num_children ? ` ${plural(job.num_children, "part")} of it are kept; those that wait are cancelled.` : "";
  const dialog = el(
    "dialog",
    { "aria-label": "Delete" },
    el("h2", {}, `Delete ${job.name ?? job.id}?`),
    el("p", {}, `The ${job.kind.replaceAll("_", " ")} goes with its results, events and log.${parts}`),
    said,
    el("div", { class: "submit" }, button, el("button", { type: "button", onclick: () => dialog.close() }, "Keep it")),
  );
  open(dialog);
}

function open(dialog) {
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** Show a job's log in a place, read when it is unfolded. */
export function showLog(place, reference) {
  const text = el("pre", { class: "joblog", tabindex: "0", "aria-label": "Log" });
  const details = el("details", {}, el("summary", {}, "Log"), text);
  const read = throttled(async () => {
    if (!details.open) return;
    const response = await fetch(`/api/v1/jobs/${encodeURIComponent(reference)}/log`, { credentials: "same-origin" });
    const body = await response.text();
    text.textContent = response.ok ? body || "Nothing yet." : JSON.parse(body).detail;
    text.scrollTop = text.scrollHeight;
  }, 2000);
  details.addEventListener("toggle", read);
  show(place, details);
  return read;
}

/** Give a page its head and its log, if it has places for them. */
export function jobFrame(reference, changed) {
  const head = new JobHead(byId("job"), reference, changed);
  const readLog = showLog(byId("joblog"), reference);
  return { head, happened: () => { head.load(); readLog(); } };
}
