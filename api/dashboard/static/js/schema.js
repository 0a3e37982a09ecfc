// What a JSON Schema says of one place of a request, and whether a value fits it.

/** The schemas of a request; `path` is such as `controller.episodes`. */
export class Schema {
  constructor(document) {
    this.document = document;
  }

  /** The part at a path, with what surrounds it resolved; null if there is none. */
  at(path) {
    let node = this.document;
    for (const name of path ? path.split(".") : []) {
      const owner = this.resolve(node);
      const child = owner.properties?.[name];
      if (!child) return null;
      node = child;
    }
    return this.resolve(node);
  }

  /** Follow references; a choice between null and one other thing is that thing. */
  resolve(node) {
    if (node.$ref) {
      const target = this.document.$defs[node.$ref.split("/").at(-1)];
      const { $ref, ...own } = node;
      return this.resolve({ ...target, ...own });
    }
    const choices = (node.anyOf ?? []).filter((choice) => choice.type !== "null");
    if (node.anyOf && choices.length === 1) {
      const { anyOf, ...own } = node;
      return { ...this.resolve(choices[0]), ...own, optional: true };
    }
    if (node.allOf?.length === 1) {
      const { allOf, ...own } = node;
      return this.resolve({ ...allOf[0], ...own });
    }
    return node;
  }

  /** The alternatives of a union that is told apart by `name`: name, or what names look like, → schema. */
  alternatives(node) {
    const tags = new Map(Object.entries(node.discriminator.mapping).map(([tag, ref]) => [ref, tag]));
    return Object.fromEntries(node.oneOf.map((choice) => [tags.get(choice.$ref), this.resolve(choice)]));
  }

  /** What the description of the surrounding object says of each of its attributes. */
  static helps(node) {
    const text = (node.description ?? "").replaceAll("``", "");
    const [, attributes] = text.split(/Attributes:\n/);
    const helps = {};
    let name = null;
    for (const line of (attributes ?? "").split("\n")) {
      const start = /^ {4}(\w+): (.*)$/.exec(line);
      if (start) {
        name = start[1];
        helps[name] = start[2];
      } else if (name && line.startsWith("        ")) helps[name] += ` ${line.trim()}`;
    }
    return helps;
  }
}

/** Whether a schema wants a number, or takes one beside other things. */
const types = (node) => [node, ...(node.anyOf ?? [])].map((n) => n.type);

/**
 * Read what was typed. A node with an `example` must be given.
 *
 * @returns `{value}` or `{error}`; a value of undefined means that nothing was typed.
 */
export function read(node, text) {
  const typed = text.trim();
  if (typed === "") return node.example ? { error: `one such as ${node.example}` } : { value: undefined };
  if (node.type === "array") return list(node, typed);
  const several = (node.anyOf ?? []).find(({ type }) => type === "array");
  if (several && /[\n,]/.test(typed)) return list(several, typed);
  const word = (node.anyOf ?? []).find((n) => n.const === typed || n.enum?.includes(typed));
  if (word) return { value: typed };
  if (types(node).some((type) => type === "number" || type === "integer")) return number(node, typed);
  if (node.minLength && typed.length < node.minLength) return { error: `at least ${node.minLength} characters` };
  if (node.maxLength && typed.length > node.maxLength) return { error: `at most ${node.maxLength} characters` };
  if (node.pattern && !new RegExp(node.pattern, "u").test(typed)) {
    const [, choices] = /^\^\(([^()]*)\)\$$/.exec(node.pattern) ?? [];
    if (choices) return { error: `one of ${choices.replaceAll("|", ", ")}` };
    return { error: node.example ? `one such as ${node.example}` : "letters and digits of any script, and any of . _ - only" };
  }
  return { value: typed };
}

function list(node, typed) {
  const isNumber = ["number", "integer"].includes(node.items?.type);
  const between = isNumber || node.items?.enum ? /[\n,]/ : "\n"; // other things may hold a comma
  const lines = typed.split(between).map((line) => line.trim()).filter(Boolean);
  if (!isNumber) return { value: lines };
  const found = lines.map((line) => number(node.items, line));
  return found.find(({ error }) => error) ?? { value: found.map(({ value }) => value) };
}

function number(node, typed) {
  const value = Number(typed.replace("−", "-"));
  const own = [node, ...(node.anyOf ?? [])].find((n) => n.type === "number" || n.type === "integer");
  const isWhole = !types(node).includes("number");
  if (!Number.isFinite(value)) return { error: `a number, not “${typed}”` };
  if (isWhole && !Number.isInteger(value)) return { error: `a whole number, not ${typed}` };
  if (value < own.minimum) return { error: `at least ${own.minimum}` };
  if (value > own.maximum) return { error: `at most ${own.maximum}` };
  if (value <= own.exclusiveMinimum) return { error: `above ${own.exclusiveMinimum}` };
  if (value >= own.exclusiveMaximum) return { error: `below ${own.exclusiveMaximum}` };
  return { value };
}
