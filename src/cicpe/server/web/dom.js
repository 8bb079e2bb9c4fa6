// Elements, numbers as text, and what is typed but not yet sent.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element; children may be nested lists, null is left out. */
export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);

/** An SVG element. */
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

/** A number with enough digits to go there. */
export const figure = (value, digits = 5) => (typeof value === "string" ? value : String(Number(Number(value).toPrecision(digits))).replace("-", "\u2212"));

/** A number with so many decimals, as the server says that they are worth reading. */
export function rounded(value, decimals) {
  if (decimals >= 12) return figure(value, 6);
  const text = Number(value).toFixed(decimals);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "\u2212");
}

/** Several numbers in a row, none of which is broken in the middle. */
export const unbroken = (values, digits = 5) => values.map((value, i) => [i ? ", " : null, h("span", { class: "whole" }, figure(value, digits))]);

/** Several numbers in a row. */
export const point = (values, digits = 5) => values.map((value) => figure(value, digits)).join(", ");

/** What a person typed as one number: a comma is a decimal point, and a typographic minus is a minus. */
export function typedNumber(text) {
  const plain = text.trim().replace("\u2212", "-").replace(/^([^.,]*),([^.,]*)$/, "$1.$2");
  return plain !== "" && /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(plain) ? Number(plain) : NaN;
}

/** What a person typed as one measurement: a number, or yes or no; null where it is neither. */
export function typedValue(text) {
  const number = typedNumber(text);
  if (Number.isFinite(number)) return number;
  return /^(yes|no|y|n|true|false)$/i.test(text.trim()) ? text.trim().toLowerCase() : null;
}

/** A field with its label, a hint and room for what is wrong with it. */
export const labelled = (label, input, hint = "") => h("div", { class: "field" }, h("label", { for: input.id }, label), input, h("p", { class: "quiet small", id: `${input.id}-hint` }, hint));

/** A field for text; numbers are text too, so that what is wrong with them can be said. */
export const textField = (id, value = "", inputmode = "decimal") => h("input", { id, type: "text", inputmode, autocomplete: "off", spellcheck: "false", value, "aria-describedby": `${id}-hint` });

/** Gives a file to whoever looks at the page. */
export function saveFile(name, text, type) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/** A button that opens a file and hands over its text. */
export function openFile(label, accept, taken, kind = "") {
  const input = h("input", { type: "file", accept, class: "hidden-text", tabindex: -1, "aria-label": label, onchange: read });
  async function read() {
    const [file] = input.files;
    input.value = ""; // the same file can be opened again
    if (file) taken(await file.text(), file.name);
  }
  return h("span", { class: "no-print" }, input, h("button", { type: "button", class: kind, onclick: () => input.click() }, label));
}

/** Does something when nothing has been asked of it for a while. */
export function debounced(act, milliseconds) {
  let timer;
  const later = (...words) => (clearTimeout(timer), (timer = setTimeout(() => act(...words), milliseconds)));
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** Says something to a screen reader. */
export function announce(text) {
  const live = document.getElementById("live");
  live.textContent = "";
  setTimeout(() => (live.textContent = text), 30);
}

/** A name that no one else will choose; crypto.randomUUID is not there on plain http beyond this machine. */
export function freshKey() {
  return "page-" + Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What is typed but not yet sent, kept over a reload of the page. */
export const drafts = {
  get: (name) => JSON.parse(sessionStorage.getItem(`draft:${name}`) ?? "null"),
  set: (name, value) => sessionStorage.setItem(`draft:${name}`, JSON.stringify(value)),
  drop: (name) => sessionStorage.removeItem(`draft:${name}`),
};

/** A form whose fields are numbers: label and field each, an error below, what was typed kept as a draft. */
export function numberFields({ id, labels, draft, big = false, hint, words = [], read: one = (text) => (Number.isFinite(typedNumber(text)) ? typedNumber(text) : null) }) {
  const kept = draft?.get() ?? [];
  const error = h("p", { class: "error", id: `${id}-error`, role: "alert" });
  const inputs = labels.map((_, i) =>
    h("input", {
      id: `${id}-${i}`, type: "text", inputmode: /^yes or no/.test(words[i] ?? "") ? "text" : "decimal", autocomplete: "off", spellcheck: "false", class: big ? "big" : "",
      "aria-describedby": `${id}-error`, value: kept[i] ?? "", oninput: keep, onpaste: spread,
    }),
  );
  function keep(event) {
    event?.target.removeAttribute("aria-invalid");
    draft?.set(inputs.map((input) => input.value));
  }
  function spread(event) {
    const text = event.clipboardData.getData("text").trim();
    const words = text.split(/[\s;]+/).length === inputs.length ? text.split(/[\s;]+/) : text.split(/\s*,\s*/);
    if (inputs.length < 2 || words.length !== inputs.length) return;
    event.preventDefault();
    inputs.forEach((input, i) => (input.value = words[i]));
    keep();
  }
  /** The keyboard of some phones has digits and a point, but no minus. */
  function sign(i) {
    const turn = () => {
      inputs[i].value = /^\s*[-\u2212]/.test(inputs[i].value) ? inputs[i].value.replace(/[-\u2212]/, "") : `-${inputs[i].value}`;
      keep();
      inputs[i].focus();
    };
    return h("button", { type: "button", class: "sign no-print", "aria-label": labels.length > 1 ? `Change the sign (${i + 1})` : "Change the sign", onclick: turn }, "\u00b1");
  }
  /** The numbers, or null with the first wrong field marked. */
  function read() {
    const values = inputs.map((input) => one(input.value));
    const wrong = values.findIndex((value) => value === null);
    error.textContent = "";
    inputs.forEach((input, i) => (values[i] !== null ? input.removeAttribute("aria-invalid") : input.setAttribute("aria-invalid", "true")));
    if (wrong < 0) return values;
    const typed = inputs[wrong].value.trim();
    error.textContent = typed === "" ? `${labels[wrong]}: please type a number.` : `${labels[wrong]}: \u201c${typed}\u201d is not a number.`;
    inputs[wrong].focus();
    return null;
  }
  const element = h(
    "div", { class: "fields" },
    h("div", { class: `numbers ${labels.length > 1 ? "many" : ""}` }, labels.map((label, i) => h("div", { class: "field" }, h("label", { for: `${id}-${i}` }, label), h("div", { class: "signed" }, inputs[i], sign(i))))),
    hint ? h("p", { class: "quiet small" }, hint) : null,
    error,
  );
  return { element, inputs, read, refuse: (text) => (error.textContent = text), typed: () => inputs.some((input) => input.value.trim() !== "") };
}
