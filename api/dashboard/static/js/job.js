// What the page of every job shows alike: at its head one line that says what it does or waits for
// and since when; its name, note, labels and priority, which an operator may change; its log; deleting it.

import { get, send, tried } from "./api.js";
import { announce, byId, el, isOperator, problem, show, throttled, whenReleased } from "./dom.js";
import { follow } from "./events.js";
import { duration, percent, plural } from "./format.js";
import { EventLog, actionButtons, chip, failed } from "./parts.js";

const TICK_MS = 1000;
const AGAIN_MS = 5000;
const OVER = ["succeeded", "failed", "cancelled"];
const line = byId("job"); // stays when the rest of the head is shown anew

const since = (text) => duration(Date.now() - new Date(text));

/** What a job does or waits for, since when, how much is done, and how long it will take yet. */
export function standingOf(job, counted = true) {
  if (OVER.includes(job.status)) return endOf(job);
  const words = [job.standing];
  if (job.phase_since) words.push(`for ${since(job.phase_since)}`);
  if (counted && job.status === "running" && job.total) words.push(percent(job.done / job.total));
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

/** The head of a job's page: its name and state, what may be done, `line`, then the rest. */
export function showHead(job, about, ...rest) {
  document.title = `${job.name} · kdnas`;
  whenReleased(byId("summary"), () => fillHead(job, about, rest));
}

function fillHead(job, { path, about, changed, buttons = null }, rest) {
  const { name, status, error, done, num_failed: numFailed } = job;
  const { action, job: does } = document.activeElement?.dataset ?? {};
  show(
    byId("summary"),
    el(
      "div",
      { class: "head" },
      el("div", {}, el("div", { class: "title" }, el("h1", {}, name), chip(status)), el("p", { class: "muted" }, about)),
      el("div", { class: "actions" }, buttons, actionButtons(path, job, changed)),
    ),
    line,
    error && el("p", { class: "notice bad", role: "alert" }, error),
    numFailed ? el("p", { class: "notice" }, `${numFailed} of ${done} failed, and the others are kept; resumed, it tries them again.`) : null,
    rest,
  );
  if (action) byId("summary").querySelector(`[data-action="${action}"]`)?.focus();
  else if (does) line.querySelector(`[data-job="${does}"]`)?.focus(); // taken out and put back
}

/** Keep the line at the head of a job up to date, and let it be changed there. */
class JobLine {
  #job = null;
  #isGone = false;
  #changed;
  #reference;

  constructor(reference, changed) {
    this.#reference = reference;
    this.#changed = changed;
    // What cannot be read the page says already.
    this.load = throttled(() => tried(() => this.#read(), () => {}), 1000);
    setInterval(() => this.#tick(), TICK_MS);
    setInterval(() => !document.hidden && this.isAtWork && this.load(), AGAIN_MS);
    this.load();
  }

  get wasThere() {
    return this.#job !== null;
  }

  get isAtWork() {
    return !this.#isGone && this.#job !== null && !OVER.includes(this.#job.status);
  }

  async #read() {
    if (this.#isGone) return;
    this.#job = await get(`/jobs/${encodeURIComponent(this.#reference)}`);
    this.#reference = this.#job.id;
    whenReleased(line, () => this.#show());
  }

  #show() {
    const job = this.#job;
    const button = (does, more, text, onclick) => el("button", { type: "button", class: `quiet small ${more}`, onclick, "data-job": does }, text);
    const focused = line.contains(document.activeElement) ? document.activeElement.dataset.job : null;
    show(
      line,
      el("p", { class: "standing", "data-status": job.status }, el("span", { "data-standing": true }, standingOf(job)), job.worker && el("span", { class: "muted" }, ` · on ${job.worker}`)),
      el(
        "div",
        { class: "job-about" },
        job.owner && el("span", { class: "muted" }, `by ${job.owner}`),
        job.note && el("span", { class: "job-note" }, job.note),
        labelsOf(job),
        isOperator() && job.status === "paused" && job.standing !== "paused" ? endButton(button("pause-now", "danger", "Pause now", () => this.#pauseNow())) : null,
        isOperator() ? button("edit", "", "Name, note, labels, priority", () => this.#edit()) : null,
        isOperator() && job.status !== "running" && !(job.status === "paused" && job.worker) ? button("delete", "danger", "Delete", () => askToDelete(job)) : null,
      ),
    );
    if (focused) line.querySelector(`[data-job="${focused}"]`)?.focus();
  }

  /** Say that the job was deleted: what is shown is what it was. */
  end({ by }) {
    this.#isGone = true;
    show(byId("problem"), el("p", { class: "notice bad", role: "alert" }, `This was deleted${by ? ` by ${by}` : ""}; the page shows what it was.`));
    for (const button of byId("summary").querySelectorAll("button")) button.disabled = true;
  }

  async #pauseNow() {
    await tried(() => send("PATCH", `/jobs/${this.#job.id}`, { action: "pause_now" }), failed);
    this.load();
  }

  #tick() {
    const text = line.querySelector("[data-standing]");
    if (text) text.textContent = standingOf(this.#job);
  }

  #edit() {
    editJob(this.#job, (job) => {
      this.#job = { ...this.#job, ...job };
      this.load();
      this.#changed(job);
    });
  }
}

/** Say what a button does that ends what is being trained. */
function endButton(button) {
  button.title = "Stops without waiting for the students that are being trained: their training is lost.";
  return button;
}

/** Ask for a job's name, note, labels and priority; `done` is told the job as it is then. */
function editJob(job, done) {
  const field = (label, name, value, help, kind = "input") => {
    const input = el(kind, { id: `job-${name}`, name, autocomplete: "off" });
    input.value = value;
    return el("div", { class: "field" }, el("label", { for: `job-${name}` }, label), input, help && el("p", { class: "help" }, help));
  };
  const wrong = el("div", {});
  const form = el(
    "form",
    { method: "dialog", class: "spec" },
    el("h2", {}, job.name ?? job.id),
    job.name === null ? null : field("Name", "name", job.name),
    field("Note", "note", job.note ?? "", null, "textarea"),
    field("Labels", "labels", job.labels.join(" "), "Words with a space between."),
    field("Priority", "priority", job.priority, "From −100 to 100; of your jobs that wait the highest is taken up first."),
    wrong,
    answers(el("button", { class: "primary", value: "save" }, "Save"), "Leave as it is", () => dialog.close()),
  );
  const dialog = ask("Name, note, labels and priority", form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = new FormData(form);
    // A form sends the ends of lines as CRLF. What was left as it was is not sent: somebody else may
    // have changed it meanwhile.
    const note = given.get("note").replaceAll("\r\n", "\n");
    const labels = given.get("labels").split(/\s+/).filter(Boolean);
    const priority = given.get("priority").trim() || "0";
    const change = {
      ...(note !== (job.note ?? "") && { note }),
      ...(labels.join(" ") !== job.labels.join(" ") && { labels }),
      ...(priority !== String(job.priority) && { priority }),
      ...(given.get("name") && given.get("name") !== job.name && { name: given.get("name") }),
    };
    if (!Object.keys(change).length) {
      dialog.close();
      return;
    }
    try {
      done(await send("PATCH", `/jobs/${job.id}`, change));
      dialog.close();
      announce("Saved");
    } catch (error) {
      show(wrong, problem(error));
    }
  });
}

/** Ask whether to delete a job for good; what stands on it is named by the service. */
function askToDelete(job) {
  const said = el("div", {});
  let force = false;
  const button = el("button", { type: "button", class: "danger" }, "Delete for good");
  button.addEventListener("click", async () => {
    try {
      await send("DELETE", `/jobs/${job.id}${force ? "?force=true" : ""}`, {});
      dialog.close();
      location.assign("/jobs");
    } catch (error) {
      force = error.status === 409 && job.status !== "running";
      if (force) button.textContent = "Delete it all the same";
      show(said, problem(error));
    }
  });
  const parts = job.num_children ? ` ${plural(job.num_children, "part")} of it are kept; those that wait are cancelled.` : "";
  const what = el("p", {}, `The ${job.kind.replaceAll("_", " ")} goes with its results, events and log.${parts}`);
  const dialog = ask("Delete", el("h2", {}, `Delete ${job.name ?? job.id}?`), what, said, answers(button, "Keep it", () => dialog.close()));
}

const answers = (button, no, close) => el("div", { class: "submit" }, button, el("button", { type: "button", onclick: close }, no));

function ask(label, ...content) {
  // The line at the head is shown anew meanwhile, and with it the button that opened this.
  const opener = document.activeElement?.dataset.job;
  const close = () => {
    dialog.remove();
    if (opener) line.querySelector(`[data-job="${opener}"]`)?.focus();
  };
  const dialog = el("dialog", { "aria-label": label, onclose: close }, ...content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

async function logOf(reference) {
  try {
    const response = await fetch(`/api/v1/jobs/${encodeURIComponent(reference)}/log`, { credentials: "same-origin" });
    const body = await response.text();
    return response.ok ? body || "Nothing yet." : JSON.parse(body).detail;
  } catch (error) { // no answer, or none of ours
    return `The log could not be read: ${error.message}. It is tried again.`;
  }
}

/** Show a job's log in a place, read when it is unfolded, and then again as long as it is at work. */
function showLog(place, reference, head) {
  const text = el("pre", { class: "joblog", tabindex: "0", "aria-label": "Log" });
  const details = el("details", {}, el("summary", {}, "Log"), text);
  const read = throttled(async () => {
    if (!details.open) return;
    const said = await logOf(reference);
    if (said === text.textContent) return; // what is marked in it stays so
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
    text.textContent = said;
    if (atEnd) text.scrollTop = text.scrollHeight;
  }, 2000);
  details.addEventListener("toggle", read);
  setInterval(() => !document.hidden && head.isAtWork && read(), AGAIN_MS); // not all that is said is an event
  show(place, details);
  return read;
}

/**
 * Give a page the line at its head, its events and its log.
 *
 * @param {string} reference id or name of the job.
 * @param {() => void} changed called after something was changed at the head.
 * @param {object} events `about(event)`: which of several things an event is about, in words;
 *   `isLogged(event)`: whether it is listed.
 * @returns what follows the job: given its id, what is done at each new event, and what when a
 *   lost connection is there again.
 */
export function jobFrame(reference, changed, { about, isLogged = () => true } = {}) {
  const head = new JobLine(reference, changed);
  const readLog = showLog(byId("joblog"), reference, head);
  const list = new EventLog(byId("log").querySelector("[data-log]"), about);
  const happened = (id, onNews) => (event, isNew) => {
    if (isLogged(event)) list.add(event);
    if (!isNew) return;
    if (event.type.endsWith("_deleted") && event.payload.job === id) {
      head.end(event.payload);
      return;
    }
    head.load();
    readLog();
    onNews(event);
  };
  return (id, onNews, onBack) => follow({ job: id }, Number(document.body.dataset.logSince), happened(id, onNews), onBack, () => head.wasThere && head.end({}));
}
