// What several pages show alike: a status, progress, the buttons of a piece of work, its events.

import { byId, el, isOperator, problem, show } from "./dom.js";
import { address, send } from "./api.js";
import { exactMoment, fixed, ms, whole } from "./format.js";

const ACTIONS = {
  queued: ["pause", "cancel"],
  running: ["pause", "cancel"],
  paused: ["resume", "cancel"],
  failed: ["resume", "cancel"],
};
const WORDS = { pause: "Pause", resume: "Resume", cancel: "Cancel" };
const LOG_LENGTH = 200;
export const LOSS_START = "held-out relative loss before the first step";

/** Says behind an architecture what noise cannot tell it from. */
export const alike = (best, words) => el("span", { class: "muted", title: words, "aria-label": words }, ` ≈ ${best}`);

export const chip = (status) => el("span", { class: "chip", "data-status": status }, status);

/** A bar, filled to a share from 0 to 1; it says its percentage to a screen reader. */
export function bar(share, label, mini = false) {
  const fill = el("span");
  const percent = Math.round(100 * Math.min(1, Math.max(0, share || 0)));
  fill.style.width = `${percent}%`;
  return el(
    "div",
    {
      class: mini ? "progress mini" : "progress", role: "progressbar", "aria-label": label,
      "aria-valuenow": percent, "aria-valuemin": 0, "aria-valuemax": 100,
    },
    fill,
  );
}

/** A group of figures: pairs of a word and a value. */
export function tiles(pairs) {
  return el(
    "dl",
    { class: "tiles" },
    pairs.map(([word, ...value]) => el("div", { class: "tile" }, el("dt", {}, word), el("dd", {}, value))),
  );
}

/** Words and values, a line for each. */
export function facts(pairs, left = false) {
  return el(
    "dl",
    { class: left ? "facts left" : "facts" },
    pairs.flatMap(([word, ...value]) => [el("dt", {}, word), el("dd", {}, value)]),
  );
}

// Path and action → button and what to call. A page is shown anew with each event; a new button
// would have forgotten that "Cancel for good?" was asked.
const buttons = new Map();

/** Say at the head of the page what did not work. */
export const failed = (error) => show(byId("problem"), problem(error));

/** The buttons that the state of a job allows; cancelling is asked twice. */
export function actionButtons(path, { status, num_failed: numFailed, owner_kind: ownerKind }, done) {
  if (!isOperator()) return [];
  const actions = (status === "succeeded" && numFailed ? ["resume"] : ACTIONS[status]) ?? [];
  // What a command began goes on by that command.
  return actions.filter((action) => action !== "resume" || ownerKind !== "cli").map((action) => {
    const key = `${path} ${action}`;
    const { button } = buttons.get(key) ?? { button: actionButton(path, action, key) };
    buttons.set(key, { button, done });
    return button;
  });
}

function actionButton(path, action, key) {
  const button = el(
    "button",
    {
      type: "button", class: action === "cancel" && "danger", "data-action": action,
      "data-key": key,
    },
    WORDS[action],
  );
  let sure = action !== "cancel";
  button.addEventListener("click", async () => {
    if (!sure) {
      sure = true;
      button.textContent = "Cancel for good?";
      setTimeout(() => {
        sure = false;
        button.textContent = WORDS[action];
      }, 4000);
      return;
    }
    button.disabled = true;
    try {
      const answer = await send("PATCH", path, { action });
      const { done } = buttons.get(key);
      buttons.delete(key); // should the same be allowed again, it begins as a new button
      done(answer);
    } catch (error) {
      button.disabled = false;
      failed(error);
    }
  });
  return button;
}

/** Links to a report in several formats: format → word. */
export function downloads(formats, path, query, name) {
  return Object.entries(formats).flatMap(([format, word], i) => [
    i ? " · " : "",
    el("a", { href: address(path, { ...query, format }), download: `${name}.${format}` }, word),
  ]);
}

/** A list of events, the newest first. */
export class EventLog {
  /** `about(event)` says before the words which of several things an event is about. */
  constructor(list, about = () => "") {
    this.list = list;
    this.about = about;
    this.list.append(el("li", { "data-none": true }, el("span", { class: "muted" }, "Nothing yet.")));
  }

  add(event) {
    const text = inWords(event);
    if (text === null) return;
    this.list.querySelector("[data-none]")?.remove();
    this.list.prepend(
      el("li", {}, el("time", { datetime: event.created_at }, exactMoment(event.created_at)), el("span", {}, this.about(event) + text)),
    );
    while (this.list.children.length > LOG_LENGTH) this.list.lastElementChild.remove();
  }
}

const because = (error) => (error ? `: ${error}` : "");

/** Kind of the job that an event is about; one that was deleted is named in what its event says. */
export const kindOf = ({ kind, payload }) => kind ?? payload.kind ?? null;

/** What events of every kind say, by the end of their type. */
const OF_EVERY_KIND = {
  created: (p) => `Asked for${p.name ? ` as ${p.name}` : ""}${p.architecture ? `: ${p.architecture}` : ""}`,
  status: (p) => `Now ${p.status}${p.at_once ? " at once" : ""}${because(p.error)}`,
  preparing: (p) => `${p.text}${p.share == null ? "" : ` (${Math.round(100 * p.share)} %)`}`,
  warning: (p) => `Warning: ${p.text}`,
  interrupted: (p) => `Interrupted: ${p.reason}${p.deaths > 1 ? `, ${p.deaths} times at this place` : ""}`,
  renamed: (p) => `Now called ${p.name}`,
  noted: (p) => (p.note ? `Note: ${p.note}` : "Its note was taken away"),
  prioritised: (p) => `Priority: ${p.priority}`,
  labelled: (p) => `Labels: ${p.labels.join(", ") || "none"}`,
  deleted: (p) => `The ${p.kind.replaceAll("_", " ")} ${p.name ?? p.job} was deleted`,
};

const SENTENCES = {
  episode_started: (p) =>
    `Episode ${p.episode} began with ${p.num_candidates} candidates` +
    (p.epsilon == null ? "" : `, ε ${fixed(p.epsilon, 2)}`),
  attempts_started: (p) => `Training ${p.candidates.length} together on ${p.worker}`,
  attempts_interrupted: (p) => `${p.candidates.length} interrupted${because(p.reason)}`,
  candidate_finished: (p) =>
    p.status === "failed"
      ? `${p.architecture} failed${because(p.error)}`
      : p.status === "stopped"
      ? `${p.architecture} ${p.note}`
      : `${p.architecture}: reward ${fixed(p.reward)}, loss ${fixed(p.loss_relative)}, ${ms(p.latency_ms)}` +
        (p.reused ? ", known before" : ""),
  episode_finished: (p) =>
    `Episode ${p.episode} ended` +
    (p.controller_loss == null ? "" : `; the controller's loss is ${fixed(p.controller_loss, 4)}`),
  distillation_progress: (p) =>
    (p.total_steps ? `Step ${whole(p.step)} of ${whole(p.total_steps)}` : "As it starts") +
    (p.loss == null ? "" : `, loss ${fixed(p.loss, 4)}`) +
    (p.relative == null ? "" : `, held-out loss ${fixed(p.relative)}`),
  task_distillation_trial: (p) =>
    `Trial ${p.done} of ${p.total} of the grid of ${p.method}: batch ${p.batch_size}, rate ${p.learning_rate}` +
    (p.beta == null ? "" : `, β ${p.beta}`) +
    (p.held_out == null ? " diverged" : `: held out ${fixed(p.held_out)}`),
  task_distillation_run: (p) =>
    `${p.method} seed ${p.seed}${p.error ? ` failed${because(p.error)}` : `: score ${fixed(p.main)}, held out ${fixed(p.held_out)}`}`,
  pipeline_status: (p) => `The pipeline ${p.status === "succeeded" ? "has" : "is"} ${p.status}${because(p.error)}`,
  pipeline_stage: (p) => (p.stage === "done" ? "All stages are over" : `Stage: ${p.stage}`),
  pipeline_members: (p) => `Chosen: ${p.members.filter((m) => m.architecture && m.role !== "undistilled").map((m) => m.architecture).join("; ")}`,
  evaluation_created: (p) => `${p.task}, seed ${p.seed}: asked for`,
  evaluation_status: (p) => `${p.task}, seed ${p.seed}: now ${p.status}${because(p.error)}`,
};

function inWords(event) {
  const { type, payload } = event;
  const kind = kindOf(event);
  const words = SENTENCES[type] ?? (kind && type.startsWith(`${kind}_`) ? OF_EVERY_KIND[type.slice(kind.length + 1)] : null);
  if (!words) return null;
  return words(payload) + (payload.by ? `, by ${payload.by}` : "");
}

/** Name the strategy of a search's controller; a request from before strategies had options is its name. */
export const strategyOf = ({ strategy }) => strategy.name ?? strategy;

/** Say with which options the strategy of a search's controller proposes. */
export function optionsOf({ strategy }) {
  const { name, options, ...own } = strategy.name ? strategy : {};
  // A request holds those of all variants, of which each goes by its own.
  const byDraws = own.acquisition === "thompson" || ["paper", "once"].includes(own.variant);
  const idle = [...(byDraws ? ["confidence"] : []), ...(own.variant === "learning" ? ["epsilon_start", "epsilon_min", "epsilon_decay"] : [])];
  const isMeant = ([option, value]) => value != null && !idle.includes(option);
  const told = Object.entries({ ...own, ...options }).filter(isMeant);
  return told.map(([option, value]) => `${option.replaceAll("_", " ")} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ") || "–";
}
