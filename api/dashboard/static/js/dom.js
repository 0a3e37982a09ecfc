// Elements are made with text, never with markup, so that no name can become a script.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element; `on…` are listeners, null and false are left out, children may be text. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}

const present = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined);

const nameOf = (details) => details.dataset.name ?? details.querySelector("summary")?.textContent;

/** Put other content into an element; what a reader has opened in it stays open. */
export function show(node, ...children) {
  const open = new Map([...node.querySelectorAll("details")].map((one) => [nameOf(one), one.open]));
  node.replaceChildren(...present(children));
  for (const one of node.querySelectorAll("details")) one.open = open.get(nameOf(one)) ?? one.open;
}

let pressed = null; // what a pointer is down on
const due = new Map(); // element → what waits until the pointer is up again

addEventListener("pointerdown", ({ target, button }) => button === 0 && (pressed = target), true);
const released = () =>
  setTimeout(() => { // after the click
    pressed = null;
    const actions = [...due.values()];
    due.clear();
    for (const action of actions) action();
  });
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, released, true);
addEventListener("blur", released);

/** Show other content in an element, but not while a pointer is down in it: with what it is down on
 * the click would be lost. Of several contents that wait the last one is shown. */
export function whenReleased(node, action) {
  if (pressed && node.contains(pressed)) due.set(node, action);
  else action();
}

export const byId = (id) => document.getElementById(id);

/** Say something to a screen reader, politely. */
export function announce(text) {
  byId("announce").textContent = text;
}

/** What stands where there is nothing to show yet. */
export const nothing = (text) => el("div", { class: "empty slim" }, text);

/** A notice that something did not work, with a way to try again. */
export function problem(error, retry = null) {
  return el(
    "div",
    { class: "notice bad", role: "alert" },
    error.message,
    retry && el("button", { type: "button", class: "small", onclick: retry }, "Try again"),
  );
}

/** Call `action` once things have been quiet for a while. */
export function debounced(action, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), milliseconds);
  };
}

/** Call `action` soon, but never more often than once in a while; one call at a time. */
export function throttled(action, milliseconds) {
  let wanted = false;
  let busy = false;
  const run = async () => {
    busy = true;
    wanted = false;
    try {
      await action();
    } finally {
      setTimeout(() => (wanted ? run() : (busy = false)), milliseconds);
    }
  };
  return () => {
    wanted = true;
    if (!busy) run();
  };
}

export const isOperator = () => document.body.dataset.role === "operator";
