// The choice at the top of a form: which preset it begins with.

import { get } from "./api.js";
import { byId, el, problem, show } from "./dom.js";
import { put } from "./form.js";

const chooser = byId("preset");

/**
 * Let a preset fill the fields; what has no field goes along in the body.
 *
 * @param {HTMLFormElement} form
 * @param {import("./form.js").SpecForm} spec
 * @param {object[]} presets as the service lists them
 * @param {object} of `part` of a preset: `search` or `pipeline`; `prefix` of a search's fields
 */
export function offerPresets(form, spec, presets, { part, prefix = "" }) {
  const learned = `${prefix}objective.name`;
  const options = presets.map(({ name }) => el("option", { value: name }, `the preset ${name}`));
  show(chooser, el("option", { value: "" }, "the defaults"), options);
  byId("presets").hidden = false;
  const objective = () => form.elements.namedItem(learned).value;
  const wanted = () => (chooser.value ? `${chooser.value} ${objective()}` : "");
  const values = async () => {
    if (!chooser.value) return [];
    const { items } = await get("/presets", objective() ? { objective: objective() } : {});
    const chosen = items.find(({ name }) => name === chooser.value);
    return leaves(chosen[part]).filter(([path]) => path !== learned);
  };
  chooser.value = history.state?.preset ?? ""; // its values come back with the form's
  let filled = history.state?.presetOf ?? "";
  let paths = history.state?.presetPaths ?? [];
  const fill = async () => {
    const now = wanted();
    if (now === filled) return; // as where the browser goes back to it
    const found = await values();
    if (now !== wanted()) return; // chosen anew meanwhile
    for (const path of paths) spec.set(path, "");
    const extra = {};
    for (const [path, value] of found) {
      if (!spec.set(path, asTyped(path, value))) put(extra, path, value);
    }
    spec.extend(extra);
    show(byId("preset-problem"));
    filled = now;
    paths = found.map(([path]) => path);
    const kept = { preset: chooser.value, presetOf: filled, presetPaths: paths };
    history.replaceState({ ...history.state, ...kept }, "");
  };
  const tell = () => fill().catch((error) => show(byId("preset-problem"), problem(error, tell)));
  chooser.addEventListener("change", tell);
  // Rates go with what is learned. The fields of another objective are there before this is called.
  form.elements.namedItem(learned).addEventListener("change", tell);
}

/** Paths and values of everything in a body that is no mapping. */
function leaves(node, path = "") {
  return Object.entries(node).flatMap(([name, value]) => {
    const whole = path ? `${path}.${name}` : name;
    const isMapping = value !== null && typeof value === "object" && !Array.isArray(value);
    return isMapping ? leaves(value, whole) : [[whole, value]];
  });
}

function asTyped(path, value) {
  if (path === "evaluation.seeds") return String(value.length);
  return Array.isArray(value) ? value.join("\n") : String(value ?? "");
}
