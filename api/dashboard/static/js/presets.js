// The choice at the top of a form: which preset it begins with.

import { get } from "./api.js";
import { byId, el, problem, show } from "./dom.js";
import { put } from "./form.js";

const chooser = byId("preset");
const BEGINS = "laptop"; // as the command line
// What is typed takes the place of what the preset wrote to the same end, as on the command line.
const REPLACES = { epochs: "steps", latency_price: "alpha", alpha: "latency_price" };

/**
 * Let a preset fill the fields; what has no field goes along in the body. Where rates change with
 * what is learned, what was typed stays as it is.
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
  const field = (path) => form.elements.namedItem(path);
  const objective = () => field(learned).value;
  const wanted = () => (chooser.value ? `${chooser.value} ${objective()}` : "");
  const values = async () => {
    if (!chooser.value) return [];
    const items = objective() ? (await get("/presets", { objective: objective() })).items : presets;
    const chosen = items.find(({ name }) => name === chooser.value);
    return leaves(chosen[part]).filter(([path]) => path !== learned);
  };
  const { preset, presetOf, presetWrote } = history.state ?? {};
  chooser.value = preset ?? BEGINS; // what it wrote comes back with the form's fields
  let filled = presetOf ?? "";
  let wrote = new Map(presetWrote); // path → what the preset put there
  const isTyped = (path) => field(path) !== null && field(path).value !== (wrote.get(path) ?? "");
  // Where somebody chose another strategy, say, the preset's options are not those of it.
  const choosing = (path) => path.replace(/(?<=\.)[^.]+$/, "name");
  const isOthers = (path) => isTyped(path) || (choosing(path) !== learned && isTyped(choosing(path)));
  const fill = async (isChosen) => {
    const now = wanted();
    if (now === filled) return; // as where the browser goes back to it
    const found = await values();
    if (now !== wanted()) return; // chosen anew meanwhile
    const before = wrote;
    const paths = new Set([...before.keys(), ...found.map(([path]) => path)]);
    const others = new Set([...paths].filter(isOthers));
    wrote = new Map([...before].filter(([path]) => others.has(path)));
    for (const path of before.keys()) if (!others.has(path)) spec.set(path, "");
    const extra = {};
    for (const [path, value] of found) {
      if (!isChosen && others.has(path)) continue;
      if (!spec.set(path, asTyped(path, value))) put(extra, path, value);
      wrote.set(path, field(path)?.value);
    }
    spec.extend(extra);
    show(byId("preset-problem"));
    filled = now;
    const kept = { preset: chooser.value, presetOf: filled, presetWrote: [...wrote] };
    history.replaceState({ ...history.state, ...kept }, "");
  };
  form.addEventListener("change", ({ target: { name, value } }) => {
    const other = name?.replace(/[^.]+$/, (last) => REPLACES[last] ?? last);
    if (!value || other === name || !wrote.has(other) || isTyped(other)) return;
    spec.set(other, "");
    wrote.delete(other);
  });
  const tell = (isChosen) => fill(isChosen).catch((error) => show(byId("preset-problem"), problem(error, () => tell(isChosen))));
  chooser.addEventListener("change", () => tell(true));
  // Rates go with what is learned. The fields of another objective are there before this is called.
  field(learned).addEventListener("change", () => tell(false));
  if (preset === undefined) queueMicrotask(() => tell(false)); // after the fields of the alternatives
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
