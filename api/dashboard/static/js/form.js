// A form for a request, made from its JSON Schema: main fields first, all others folded away.

import { newKey, send } from "./api.js";
import { announce, el, isOperator, problem, show } from "./dom.js";
import { capital } from "./format.js";
import { Schema, read } from "./schema.js";

/**
 * @typedef {object} Field
 * @property {string} path such as `controller.episodes`
 * @property {string} [label] in place of the schema's name
 * @property {string} [help] in place of the schema's words
 * @property {string} [unit] beside the label
 * @property {string} [empty] what it means to choose nothing, of a field with choices
 */

/**
 * Fields of a union, of which those of the chosen alternative are shown: all that are simple and
 * not read only, in the words of the schema. Its default is meant if none is chosen. One that has no
 * name of its own, but whatever looks like its tag, has a field for it.
 *
 * @typedef {object} Variant
 * @property {string} path of the union, such as `objective`
 * @property {Field} chooser the field that chooses, without its path
 * @property {Field} [own] the field for a name that is none of ours, without its path
 */

export class SpecForm {
  #form;
  #schema;
  #fields = new Map(); // path → {node, to, box, input, error}; `to` is its place in the body
  #initials = new Map(); // path of a union → the alternative that is meant if none is chosen
  #summary = el("div");
  #key = newKey();
  #sent = "";
  #options;

  /**
   * @param {HTMLFormElement} form
   * @param {object} schema the JSON Schema
   * @param {object} options `main` [{title, fields, variant}], `advanced` [{title, path}], `labels`
   *   of paths, `hidden` paths that nobody fills in, `path` of the POST, `submit` text, `extra` keys
   *   of the body, `done` which is given the answer
   */
  constructor(form, schema, options) {
    this.#form = form;
    this.#schema = new Schema(schema);
    this.#options = options;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    form.addEventListener("input", () => {
      this.#showBody();
      this.#keep();
    });
    this.#build();
    const { filled, extra } = history.state ?? {};
    queueMicrotask(() => this.#restore(filled ?? [], extra)); // the alternatives' fields come so, too
  }

  /** Keep what is filled in with this entry of the browser's history, for who comes back to it. */
  #keep() {
    const filled = [...this.#fields].map(([path, { input }]) => [path, input.value]);
    const { extra } = this.#options;
    history.replaceState({ ...history.state, filled: filled.filter(([, value]) => value !== ""), extra }, "");
  }

  #restore(filled, extra) {
    if (extra) this.extend(extra);
    for (const [path, value] of filled) {
      // A change may bring the fields of an alternative, which come later in the list.
      if (this.set(path, value)) this.#fields.get(path)?.input.dispatchEvent(new Event("change"));
    }
  }

  /** Put a value into a field; false if there is none. What it chooses brings its fields at once. */
  set(path, value) {
    const field = this.#fields.get(path);
    if (!field) return false;
    field.input.value = value;
    this.#mark(path, null); // what was said of the value before
    field.input.dispatchEvent(new Event("input", { bubbles: true }));
    if (this.#initials.has(path.replace(/\.name$/, ""))) field.input.dispatchEvent(new Event("change"));
    return true;
  }

  /** Let the body have other keys besides those of the fields. */
  extend(extra) {
    this.#options.extra = extra;
    this.#showBody();
    this.#keep();
  }

  #build() {
    const { main, advanced, submit } = this.#options;
    const cards = main.map(({ title, fields, variant }) =>
      el(
        "fieldset", { class: "card" }, el("h2", {}, title),
        el("div", { class: "fields" }, (fields ?? []).map((f) => this.#field(f)), variant && this.#variant(variant)),
      ),
    );
    const folded = advanced
      .map(({ title, path }) => ({ title, fields: this.#rest(path) }))
      .filter(({ fields }) => fields.length)
      .map(({ title, fields }) =>
        el("details", {}, el("summary", {}, title), el("div", { class: "fields" }, fields.map((f) => this.#field(f)))),
      );
    this.body = el("pre", { tabindex: "0" });
    this.button = el("button", { class: "primary", disabled: !isOperator() }, submit);
    if (!isOperator()) {
      const words = "You are logged in to look only: starting something wants the operator's token.";
      show(this.#summary, el("div", { class: "notice warn" }, words));
    }
    show(
      this.#form,
      this.#summary,
      ...cards,
      el("details", { class: "card", "data-advanced": true }, el("summary", {}, "All other settings"), ...folded),
      el("details", { class: "card" }, el("summary", {}, "The request as JSON"), this.body),
      el("div", { class: "submit" }, this.button),
    );
    this.#showBody();
  }

  /** All fields below a path that have no place in the form yet. */
  #rest(path) {
    const node = path ? this.#schema.at(path) : this.#schema.document;
    const found = [];
    for (const [name, child] of Object.entries(node?.properties ?? {})) {
      const whole = path ? `${path}.${name}` : name;
      const resolved = this.#schema.resolve(child);
      const known = this.#fields.has(whole) || this.#options.hidden.includes(whole);
      if (known || !isSimple(resolved)) continue;
      found.push({ path: whole, label: this.#options.labels?.[whole] });
    }
    return found;
  }

  /** The field that chooses an alternative, and the chosen one's own fields after it. */
  #variant({ path, chooser, own: named }) {
    const union = this.#schema.at(path);
    const alternatives = this.#schema.alternatives(union);
    const initial = union.default.name;
    const isOpen = ({ properties }) => properties.name.const === undefined;
    const words = Object.fromEntries(Object.entries(alternatives).map(([name, one]) => [name, isOpen(one) ? one.title : `${name}: ${one.title}`]));
    const choosing = `${path}.name`;
    const own = el("div", { class: "contents" }); // in the same grid
    const box = this.#field({ ...chooser, path: choosing, choices: Object.keys(alternatives), words, node: { type: "string", default: initial } });
    const { input } = this.#fields.get(choosing);
    const showOwn = () => {
      for (const known of [...this.#fields.keys()]) {
        if (known.startsWith(`${path}.`) && known !== choosing) this.#fields.delete(known);
      }
      const chosen = input.value || initial;
      const { properties } = alternatives[chosen];
      const fields = Object.entries(properties)
        .filter(([name, { readOnly }]) => name !== "name" && !readOnly)
        .map(([name, { title, description, unit, ...rest }]) => ({ path: `${path}.${name}`, label: title, help: description, unit, node: plain(this.#schema.resolve(rest)) }))
        .filter(({ node }) => isSimple(node));
      if (isOpen(alternatives[chosen])) {
        fields.unshift({ ...named, path: `${choosing}.own`, to: choosing, node: { ...properties.name, example: chosen } });
      }
      show(own, fields.map((field) => this.#field(field)));
      this.#showBody();
    };
    this.#initials.set(path, initial);
    input.addEventListener("change", showOwn);
    queueMicrotask(showOwn); // the form is not whole yet
    return [box, own];
  }

  #field({ path, to = path, label, help, unit, node: given, choices, words: called, wide, empty }) {
    const node = given ?? this.#schema.at(path);
    const owner = this.#schema.at(path.split(".").slice(0, -1).join("."));
    const told = Schema.helps(owner ?? {})[path.split(".").at(-1)];
    const said = help ?? (told && sentence(told));
    const id = `f-${path.replaceAll(".", "-")}`;
    const error = el("p", { class: "error", id: `${id}-error`, hidden: true });
    const input = this.#input(node, id, path, choices, called, empty);
    const words = capital(label ?? path.split(".").at(-1).replaceAll("_", " "));
    const text = el("label", { for: id }, words, unit ? el("span", { class: "muted" }, ` (${unit})`) : null);
    const explained = said ? el("p", { class: "help", id: `${id}-help` }, said) : null;
    input.setAttribute("aria-describedby", [said && `${id}-help`, `${id}-error`].filter(Boolean).join(" "));
    const box = el("div", { class: wide ? "field wide" : "field", "data-path": path }, text, input, explained, error);
    input.addEventListener("change", () => {
      if (this.#fields.get(path)?.input === input) this.#check(path); // not if it has just been removed
    });
    this.#fields.set(path, { node, to, box, input, error });
    return box;
  }

  #input(node, id, path, choices, called = {}, empty = "default") {
    const fallback = node.default;
    const shown = fallback === null || fallback === undefined ? "" : String(fallback);
    const values = choices ?? node.enum ?? (node.type === "boolean" ? ["true", "false"] : null);
    if (values) {
      const options = values.map((value) => el("option", { value: String(value) }, called[value] ?? names(value)));
      const none = el("option", { value: "" }, shown ? `${names(shown)} (default)` : empty);
      return el("select", { id, name: path }, none, options);
    }
    if (node.type === "array") {
      return el("textarea", { id, name: path, rows: 2, placeholder: (fallback ?? []).join("\n") });
    }
    const isNumber = ["number", "integer"].includes(node.type);
    return el("input", {
      id, name: path, placeholder: node.example ?? (shown || (node.optional ? "none" : "")), autocomplete: "off",
      spellcheck: "false", inputmode: isNumber ? (node.type === "integer" ? "numeric" : "decimal") : null,
    });
  }

  #read(path) {
    const { node, input } = this.#fields.get(path);
    const { value, error } = read(node, input.value);
    if (error) return { error };
    if (node.type === "boolean" && value !== undefined) return { value: value === "true" };
    return { value };
  }

  #check(path) {
    const { error } = this.#read(path);
    this.#mark(path, error ?? null);
    return !error;
  }

  #mark(path, message) {
    const { box, input, error } = this.#fields.get(path);
    box.toggleAttribute("data-wrong", message !== null);
    input.setAttribute("aria-invalid", String(message !== null));
    error.hidden = message === null;
    error.textContent = message === null ? "" : sentence(message);
    for (let d = message && box.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
  }

  /** The request: only what was filled in. */
  request() {
    const body = structuredClone(this.#options.extra ?? {});
    for (const [path, { to }] of this.#fields) {
      const { value } = this.#read(path);
      if (value === undefined) continue;
      put(body, to, value);
    }
    for (const [path, initial] of this.#initials) {
      const chosen = path.split(".").reduce((node, name) => node?.[name], body);
      if (chosen) chosen.name ??= initial;
    }
    return body;
  }

  #showBody() {
    this.body.textContent = JSON.stringify(this.request(), null, 2);
  }

  async #submit() {
    show(this.#summary);
    const wrong = [...this.#fields.keys()].filter((path) => !this.#check(path));
    if (wrong.length) return this.#lead(wrong[0], wrong.length);
    const body = this.request();
    const text = JSON.stringify(body);
    if (text !== this.#sent) this.#key = newKey(); // another request; the same one again keeps it
    this.#sent = text;
    this.button.disabled = true;
    try {
      this.#options.done(await send("POST", this.#options.path, body, this.#key));
    } catch (error) {
      this.#refused(error);
    } finally {
      this.button.disabled = false;
    }
    return undefined;
  }

  #lead(path, count) {
    announce(count === 1 ? "One field is not right yet" : `${count} fields are not right yet`);
    this.#fields.get(path).input.focus();
  }

  /** Show what the service did not like: at its fields where it names them, else at the top. */
  #refused(error) {
    const left = [];
    const marked = new Map(); // path → what is said there
    for (const { where, message } of error.errors ?? []) {
      const names = where.split(".").filter((name, i) => i > 0 || name !== "body");
      const path = this.#pathOf(names);
      if (path !== null) marked.set(path, [...(marked.get(path) ?? []), message]);
      else left.push(names.length && !message.includes(names.join(".")) ? `${names.join(".")}: ${message}` : message);
    }
    for (const [path, messages] of marked) this.#mark(path, messages.map(sentence).join(" "));
    if (marked.size) this.#lead([...marked.keys()].sort(this.#inOrder)[0], marked.size);
    if (left.length || !marked.size) {
      show(this.#summary, left.length ? left.map((message) => problem({ message: sentence(message) })) : problem(error));
      if (!marked.size) this.#summary.scrollIntoView({ block: "center" });
    }
  }

  /** The order of two fields on the page, those of alternatives among them. */
  #inOrder = (one, other) => {
    const [first, second] = [one, other].map((path) => this.#fields.get(path).box);
    return first.compareDocumentPosition(second) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1;
  };

  /**
   * The field that a place such as `controller.episodes` belongs to: its own, of a part of a list that
   * of the list, and of an object the first within it. Null if nobody fills it in here.
   */
  #pathOf(names) {
    const path = names.filter((name) => !/^\d+$/.test(name)).join(".");
    if (this.#fields.has(path)) return path;
    const within = [...this.#fields.keys()].filter((key) => path && key.startsWith(`${path}.`));
    return within.find((key) => this.#fields.get(key).to !== key) ?? within.sort(this.#inOrder)[0] ?? null;
  }
}

/** Put a value into a body, at a path such as `controller.episodes`. */
export function put(body, path, value) {
  const names = path.split(".");
  const last = names.pop();
  let place = body;
  for (const name of names) place = place[name] ??= {};
  place[last] = value;
}

/** A choice between something simple and an object, which a form has no field for: the former. */
function plain(node) {
  const simple = (node.anyOf ?? []).filter((choice) => choice.type !== "object" && choice.type !== "null");
  if (!node.anyOf || simple.length !== 1) return node;
  const { anyOf, ...own } = node;
  return { ...own, ...simple[0] };
}

function isSimple(node) {
  if (node.properties || node.oneOf || node.type === "object" || node.prefixItems) return false;
  if (node.type === "array") return ["string", "integer", "number"].includes(node.items?.type);
  return !(node.anyOf ?? []).some((choice) => choice.type === "object" || choice.$ref);
}

/** The same as a sentence: begun with a capital, ended with a stop. */
function sentence(text) {
  const whole = capital(text);
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}

const names = (value) => ({ true: "yes", false: "no" })[value] ?? String(value);
