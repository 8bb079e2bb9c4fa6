// The form of an experiment: what is typed, as a document that the server reads, and the other way round.

import { h, typedNumber } from "./dom.js";

/** A typed number as a number, nothing as null, and anything else as it is: the server says what is wrong with it. */
const number = (text) => (text.trim() === "" ? null : Number.isFinite(typedNumber(text)) ? typedNumber(text) : text.trim());
/** Per cent as a share. */
const share = (text) => (/%\s*$/.test(text) && Number.isFinite(typedNumber(text.replace("%", ""))) ? typedNumber(text.replace("%", "")) / 100 : number(text));
const text = (value) => (typeof value === "number" || typeof value === "string" ? String(value) : "");
const pairText = (value) => (Array.isArray(value) ? [text(value[0]), text(value[1])] : [text(value), ""]);
/** Two numbers; one where the second is empty and one is allowed; undefined where nothing is typed. */
const pair = ([low, high], single = false) => (!low.trim() && !high.trim() ? undefined : single && !high.trim() ? number(low) : [number(low), number(high)]);
const given = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== ""));
const table = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});

const emptySetting = () => ({ name: "", unit: "", way: "freely", range: ["", ""], step: "", values: "", scale: "linear" });

/** What a form holds: text alone, so that nothing that was typed is lost. */
export function formOf(document) {
  const doc = table(document), measurement = table(doc.measurement), model = table(doc.model), goal = table(doc.goal);
  const settings = (Array.isArray(doc.setting) ? doc.setting : []).map(table).map((one) => ({
    name: text(one.name), unit: text(one.unit), way: Array.isArray(one.values) ? "values" : one.step != null ? "steps" : "freely",
    range: pairText(one.range), step: text(one.step), values: Array.isArray(one.values) ? one.values.map(text).join(", ") : "", scale: one.scale === "log" ? "log" : "linear",
  }));
  const sought = Array.isArray(goal.find) ? goal.find.map(text) : [text(goal.find)];
  const within = table(goal.within);
  const parameters = Object.fromEntries(Object.entries(table(model.parameters)).map(([name, entry]) => [name, { range: pairText(Array.isArray(entry) || typeof entry !== "object" ? entry : table(entry).range), scale: table(entry).scale === "log" ? "log" : "linear", unit: text(table(entry).unit) }]));
  return {
    title: text(doc.title),
    settings: settings.length ? settings : [emptySetting()],
    measurement: { name: text(measurement.name), unit: text(measurement.unit), kind: text(measurement.kind) || "number", typical: pairText(measurement.typical ?? ["", ""]), noise: pairText(measurement.noise), of: text(measurement.of), limits: pairText(measurement.limits ?? ["", ""]) },
    model: {
      kind: text(model.kind) || "smooth", bumps: text(model.bumps) || (model.lengths ? "lengths" : "few"), lengths: Object.fromEntries(Object.entries(table(model.lengths)).map(([name, length]) => [name, pairText(length)])),
      shape: text(model.shape) || "logistic", guess: pairText(model.guess), lapse: pairText(model.lapse), width: pairText(model.width), threshold: pairText(model.threshold ?? ["", ""]), direction: text(model.direction) || "rising",
      formula: text(model.formula), parameters,
    },
    goal: { find: sought.join(", "), level: text(goal.level), within: Object.fromEntries(Object.entries(within).map(([name, off]) => [name, text(off)])), off: text(goal.within), sure: text(goal.sure) || "0.9", at_most: text(goal.at_most) || "100" },
  };
}

/** The names in a formula that are neither settings nor functions, in the order in which they stand there. */
export function unknownNames(form, { functions, constants }) {
  const words = form.model.formula.match(/[\p{L}_][\p{L}\p{N}_]*/gu) ?? [];
  const taken = new Set([...functions, ...constants, ...form.settings.map((one) => one.name.trim())]);
  return [...new Set(words)].filter((name) => !taken.has(name));
}

/** What is sought, split at the commas that are not inside brackets. */
function soughtOf(find) {
  const parts = [""];
  let depth = 0;
  for (const letter of find) {
    depth += letter === "(" ? 1 : letter === ")" ? -1 : 0;
    if (letter === "," && depth <= 0) parts.push("");
    else parts[parts.length - 1] += letter;
  }
  return parts.map((part) => part.trim()).filter(Boolean);
}

/** The names that need a tolerance each. */
export function toleranceNames({ model, goal, settings, measurement }) {
  if (model.kind === "formula") return soughtOf(goal.find);
  return ["height", "depth"].includes(goal.find) ? [measurement.name.trim()] : settings.map((one) => one.name.trim());
}

/** The document that a form says. */
export function documentOf(form, rules) {
  const { measurement, model, goal } = form;
  const names = toleranceNames(form);
  const within = names.length > 1 ? given(Object.fromEntries(names.map((name) => [name, number(goal.within[name] ?? goal.off ?? "")]))) : number(goal.within[names[0]] ?? goal.off ?? "");
  const sought = soughtOf(goal.find);
  const levelled = model.kind === "threshold" || (model.kind === "smooth" && goal.find === "crossing");
  return given({
    title: form.title.trim(),
    setting: form.settings.map((one) => given({
      name: one.name.trim(), unit: one.unit.trim(), ...(one.way === "values" ? { values: one.values.split(/[,;]\s*|\s+/).filter(Boolean).map(number) } : { range: pair(one.range) }),
      scale: one.scale === "log" ? "log" : null, step: one.way === "steps" ? number(one.step) : null,
    })),
    measurement: given({
      name: measurement.name.trim(), unit: measurement.kind === "number" ? measurement.unit.trim() : null, kind: measurement.kind,
      ...(measurement.kind === "number" ? { typical: pair(measurement.typical), noise: pair(measurement.noise, true), limits: pair(measurement.limits) } : {}), of: measurement.kind === "count" ? number(measurement.of) : null,
    }),
    model: given({ kind: model.kind, ...modelFields(form, rules) }),
    goal: given({ find: sought.length > 1 ? sought : goal.find.trim(), within, level: levelled ? number(goal.level) : null, sure: share(goal.sure), at_most: number(goal.at_most) }),
  });
}

function modelFields(form, rules) {
  const { model, settings } = form;
  if (model.kind === "smooth") return model.bumps === "lengths" ? { lengths: Object.fromEntries(settings.map((one) => [one.name.trim(), pair(model.lengths[one.name.trim()] ?? ["", ""], true) ?? null])) } : { bumps: model.bumps };
  if (model.kind === "threshold") return { shape: model.shape, guess: pair(model.guess, true), lapse: pair(model.lapse, true), width: pair(model.width, true), threshold: pair(model.threshold), direction: model.direction === "falling" ? "falling" : null };
  const entries = unknownNames(form, rules).map((name) => {
    const { range, scale, unit } = model.parameters[name] ?? { range: ["", ""], scale: "linear", unit: "" };
    if (range[0].trim() && !range[1].trim()) return [name, number(range[0])];
    return [name, given({ range: range.map(number), scale: scale === "log" ? "log" : null, unit: unit.trim() })];
  });
  return { formula: model.formula.trim(), parameters: Object.fromEntries(entries) };
}

const GOALS = {
  smooth: { peak: "the place of the highest value", trough: "the place of the lowest value", height: "how high the highest value is", depth: "how low the lowest value is", crossing: "where a curve crosses a value" },
  threshold: { threshold: "the setting at a given probability of yes" },
};

/** Draws the form. `changed` is told after everything that is typed or chosen. */
export function experimentForm(form, rules, changed) {
  const place = h("div", { class: "parts" });
  let count = 0;

  const keep = (owner, key) => (event) => ((owner[key] = event.target.value), event.target.removeAttribute("aria-invalid"), changed());
  /** Those that change which other fields there are. */
  const choose = (owner, key, then = () => {}) => (event) => {
    owner[key] = event.target.value;
    then();
    draw();
    place.querySelector(`[data-key="${CSS.escape(event.target.dataset.key)}"]`)?.focus();
    changed();
  };

  const wrong = (id) => h("p", { class: "error small", id: `${id}-error` });
  function field(path, label, owner, key, { hint = "", mode = "decimal", wide = false, placeholder, after = null } = {}) {
    const id = `e-${count++}`;
    const input = h("input", { id, type: "text", inputmode: mode, autocomplete: "off", spellcheck: "false", autocapitalize: "off", value: owner[key] ?? "", placeholder, "data-key": `${path}`, "aria-describedby": `${id}-error`, oninput: keep(owner, key), onchange: after });
    return h("div", { class: `field ${wide ? "whole-line" : ""}`, "data-path": path }, h("label", { for: id }, label), input, hint ? h("p", { class: "quiet small" }, hint) : null, wrong(id));
  }
  function range(path, label, owner, key, { hint = "", ends = ["lowest", "highest"] } = {}) {
    const id = `e-${count++}`;
    const inputs = ends.map((end, i) => h("input", { id: `${id}-${i}`, type: "text", inputmode: "decimal", autocomplete: "off", value: owner[key][i] ?? "", placeholder: end, "aria-label": `${label}, ${end}`, "data-key": `${path}/${i}`, "data-part": i, "aria-describedby": `${id}-error`, oninput: keep(owner[key], i) }));
    return h("div", { class: "field", "data-path": path }, h("label", { for: `${id}-0` }, label), h("div", { class: "pair" }, inputs[0], h("span", { class: "quiet", "aria-hidden": "true" }, "to"), inputs[1]), hint ? h("p", { class: "quiet small" }, hint) : null, wrong(id));
  }
  function select(path, label, owner, key, options, { hint = "", then, wide = false } = {}) {
    const id = `e-${count++}`;
    const input = h("select", { id, "data-key": path, "aria-describedby": `${id}-error`, onchange: choose(owner, key, then) }, Object.entries(options).map(([value, words]) => h("option", { value }, words)));
    input.value = owner[key];
    return h("div", { class: `field ${wide ? "whole-line" : ""}`, "data-path": path }, h("label", { for: id }, label), input, hint ? h("p", { class: "quiet small" }, hint) : null, wrong(id));
  }
  const part = (number, heading, path, ...content) => h("section", { class: "card", "data-path": path, "aria-labelledby": `h-part-${number}` }, h("h2", { id: `h-part-${number}` }, h("span", { class: "part-number", "aria-hidden": "true" }, String(number)), heading), ...content, h("p", { class: "error small" }));

  function settingRow(one, i) {
    const path = `setting/${i}`;
    const remove = () => (form.settings.splice(i, 1), draw(), changed());
    return h(
      "fieldset", { class: "setting", "data-path": path },
      h("legend", null, form.settings.length > 1 ? `Setting ${i + 1}` : "Setting"),
      h(
        "div", { class: "numbers" },
        field(`${path}/name`, "Name", one, "name", { mode: "text", after: () => redrawNames() }), field(`${path}/unit`, "Unit", one, "unit", { mode: "text" }),
        one.way === "values" ? field(`${path}/values`, "Its values", one, "values", { hint: "with commas between: 10, 20, 40" }) : range(`${path}/range`, "From, to", one, "range"),
        select(`${path}/way`, "It can be set", one, "way", { freely: "freely", steps: "in steps", values: "to these values only" }),
        one.way === "steps" ? field(`${path}/step`, "Step", one, "step") : null,
        select(`${path}/scale`, "Scale", one, "scale", { linear: "linear", log: "log (by factors)" }),
      ),
      h("p", { class: "error small" }),
      form.settings.length > 1 ? h("button", { type: "button", class: "plain", onclick: remove }, `Remove ${one.name || `setting ${i + 1}`}`) : null,
    );
  }

  function settingsPart() {
    const add = () => (form.settings.push(emptySetting()), draw(), changed(), place.querySelector(`[data-key="setting/${form.settings.length - 1}/name"]`)?.focus());
    return part(1, "What you choose", "setting", form.settings.map(settingRow), form.settings.length < 6 && form.model.kind !== "threshold" ? h("button", { type: "button", class: "add", onclick: add }, "Add another setting") : null);
  }

  function measurementPart() {
    const { measurement: one } = form;
    return part(
      2, "What you read", "measurement",
      h(
        "div", { class: "numbers" },
        field("measurement/name", "Name", one, "name", { mode: "text", after: () => redrawNames() }), select("measurement/kind", "It is", one, "kind", { number: "a number", "yes/no": "yes or no", count: "a count" }),
        one.kind === "number" ? [field("measurement/unit", "Unit", one, "unit", { mode: "text" }), range("measurement/noise", "Noise", one, "noise", { hint: "a standard deviation, or from and to", ends: ["at least", "at most"] }), range("measurement/typical", form.model.kind === "smooth" ? "Typical values" : "Typical values (optional)", one, "typical", { hint: "between which nearly all true values lie" })] : null,
        one.kind === "count" ? field("measurement/of", "Out of how many", one, "of", { hint: "empty: no upper end" }) : null,
      ),
      one.kind === "number" ? h("details", { class: "more", open: Boolean(one.limits[0] || one.limits[1]) }, h("summary", null, "Limits"), range("measurement/limits", "Refuse a value beyond", one, "limits", { hint: "as a slip; two widths of what is typical if left empty" })) : null,
    );
  }

  function modelPart() {
    const { model } = form;
    const kinds = { smooth: "a smooth function, nothing more", threshold: "yes becomes likelier with the setting", formula: "a formula with unknown numbers" };
    /** What goes with a kind, so that choosing one does not begin with faults that nobody made. */
    const fit = () => {
      if (model.kind === "threshold" && form.measurement.kind === "number") form.measurement.kind = "yes/no";
      if (model.kind === "smooth") form.measurement.kind = "number";
      if (model.kind === "threshold") form.settings.splice(1);
      form.goal.find = model.kind === "formula" ? unknownNames(form, rules)[0] ?? "" : Object.keys(GOALS[model.kind])[0];
    };
    return part(3, "What you know of it", "model", h("div", { class: "numbers" }, select("model/kind", "How the reading hangs together with what you choose", model, "kind", kinds, { then: fit, wide: true })), { smooth, threshold, formula }[model.kind]?.());
  }

  function smooth() {
    const { model } = form;
    return h(
      "div", { class: "numbers" }, select("model/bumps", "How wiggly", model, "bumps", { one: "one broad bump", few: "a few bumps", many: "many bumps", lengths: "I say over which distance" }),
      model.bumps === "lengths" ? h("div", { id: "lengths", class: "numbers whole-line", "data-path": "model/lengths" }, lengthFields()) : null,
    );
  }
  const lengthFields = () => form.settings.map((one) => {
    const name = one.name.trim();
    form.model.lengths[name] ??= ["", ""];
    return range(`model/lengths/${name}`, `Changes much over (${name || "?"})`, form.model.lengths, name, { hint: one.scale === "log" ? "a factor, or from and to" : `in ${one.unit || "its unit"}: a distance, or from and to`, ends: ["at least", "at most"] });
  });

  function threshold() {
    const { model } = form, share = { hint: "a probability, or from and to", ends: ["at least", "at most"] };
    return h(
      "div", { class: "numbers" },
      select("model/shape", "Curve", model, "shape", { logistic: "logistic, the usual one", probit: "probit, a normal distribution's", weibull: "Weibull, of detection" }),
      select("model/direction", "Yes becomes", model, "direction", { rising: "likelier with more", falling: "less likely with more" }),
      range("model/guess", "Yes by chance alone", model, "guess", share), range("model/lapse", "No by a slip", model, "lapse", share),
      range("model/width", "Width of the rise (optional)", model, "width", { hint: form.settings[0].scale === "log" ? "as a factor" : `in ${form.settings[0].unit || "its unit"}, from a tenth to nine tenths`, ends: ["at least", "at most"] }),
      range("model/threshold", "Where it may lie (optional)", model, "threshold"),
    );
  }

  function formula() {
    const id = `e-${count++}`;
    const input = h("input", { id, type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off", value: form.model.formula, "data-key": "model/formula", class: "code", "aria-describedby": `${id}-error`, oninput: (event) => (keep(form.model, "formula")(event), redrawParameters()) });
    return [
      h("div", { class: "field", "data-path": "model/formula" }, h("label", { for: id }, "Formula"), input, h("p", { class: "quiet small" }, `of ${form.settings.map((one) => one.name).filter(Boolean).join(", ") || "what you choose"} and names for what is unknown; + \u2212 * / ^ and ${rules.functions.join(" ")}`), wrong(id)),
      h("div", { id: "parameters", "data-path": "model/parameters" }, parameterRows()),
    ];
  }
  function parameterRows() {
    const names = unknownNames(form, rules);
    return [h("p", { class: "error small" }), ...names.map((name) => {
      const one = (form.model.parameters[name] ??= { range: ["", ""], scale: "linear", unit: "" });
      const path = `model/parameters/${name}`;
      return h("fieldset", { class: "setting", "data-path": path }, h("legend", { class: "code" }, name), h("div", { class: "numbers" }, range(`${path}/range`, "Between", one, "range", { hint: "one number alone: it is known" }), select(`${path}/scale`, "Scale", one, "scale", { linear: "linear", log: "log" }), field(`${path}/unit`, "Unit", one, "unit", { mode: "text" })), h("p", { class: "error small" }));
    })];
  }

  function goalPart() {
    const { goal, model, measurement } = form;
    const find = model.kind === "formula" ? field("goal/find", "Find", goal, "find", { mode: "text", hint: "an unknown of the formula, or an expression of them; several with commas", after: () => redrawNames() }) : select("goal/find", "Find", goal, "find", GOALS[model.kind] ?? {}, { wide: true });
    const level = goal.find === "crossing" || model.kind === "threshold" ? field("goal/level", goal.find === "crossing" ? `Which value of ${measurement.name || "it"}` : "At which probability of yes", goal, "level", { hint: goal.find === "crossing" ? measurement.unit : "half-way up if left empty" }) : null;
    return part(4, "What you want to know", "goal", h("div", { class: "numbers" }, find, level, h("div", { id: "tolerances", class: "together", "data-path": "goal/within" }, tolerances()), field("goal/sure", "How sure", goal, "sure", { hint: "a probability from 0.5 to 0.99" }), field("goal/at_most", "Measurements at most", goal, "at_most", { mode: "numeric" })));
  }
  function tolerances() {
    const { goal } = form, names = toleranceNames(form), units = Object.fromEntries([...form.settings, form.measurement].map((one) => [one.name.trim(), one.unit]));
    return names.map((name) => {
      goal.within[name] ??= goal.off ?? "";
      return field(names.length > 1 ? `goal/within/${name}` : "goal/within", `How exactly (${name || "?"})`, goal.within, name, { mode: "text", hint: `${units[name] ? `in ${units[name]}` : "in its unit"}, or such as 10 %` });
    });
  }

  /** The names of settings and parameters are on other fields too. */
  function redrawNames() {
    place.querySelector("#tolerances")?.replaceChildren(...tolerances());
    place.querySelector("#lengths")?.replaceChildren(...lengthFields());
    redrawParameters(true);
    changed();
  }
  function redrawParameters(always = false) {
    const box = place.querySelector("#parameters"), names = unknownNames(form, rules).join();
    if (!box || (!always && box.dataset.names === names)) return;
    box.dataset.names = names;
    box.replaceChildren(...parameterRows());
  }

  function draw() {
    place.replaceChildren(h("section", { class: "card" }, field("title", "Title", form, "title", { mode: "text", wide: true })), settingsPart(), measurementPart(), modelPart(), goalPart());
  }

  /** Says at every field what is wrong there. Returns what belongs to no field. */
  function showFaults(faults) {
    for (const error of place.querySelectorAll(".error")) error.textContent = "";
    for (const input of place.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
    return faults.filter((fault) => {
      const box = fieldOf(fault.path);
      if (!box) return true;
      const error = [...box.querySelectorAll(":scope > .error")].at(-1) ?? box.querySelector(".error");
      const sentence = `Must be ${fault.allowed}.`;
      if (!error) return true;
      error.textContent = error.textContent ? `${error.textContent} ${sentence}` : sentence;
      const inputs = [...box.querySelectorAll(":scope > input, :scope > select, :scope > .pair > input")];
      const one = inputs.find((input) => input.dataset.part === String(fault.path.at(-1)));
      for (const input of one ? [one] : inputs) input.setAttribute("aria-invalid", "true");
      return false;
    });
  }
  /** The smallest part of the form that a fault is about. */
  function fieldOf(path) {
    for (let end = path.length; end > 0; end--) {
      const box = place.querySelector(`[data-path="${CSS.escape(path.slice(0, end).join("/"))}"]`);
      if (box) return box;
    }
    return null;
  }

  draw();
  return { element: place, showFaults };
}
