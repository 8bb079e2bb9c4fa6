// A new experiment: the form, beside it what it means, and the way to its training.

import { Offline, Refusal, api } from "./api.js";
import { announce, debounced, drafts, h, labelled, openFile, saveFile, textField, typedNumber } from "./dom.js";
import { documentOf, experimentForm, formOf } from "./form.js";
import { predictivePicture } from "./predictive.js";

const DRAFT = "experiment";
const FIRST = "peak-1d"; // what the form begins with: an example is easier to change than nothing
const LOOK = 350, ESTIMATE = 1800; // milliseconds without a change before it is looked at, and before it is played

/** A name that can be a file's and a campaign's. */
const slug = (title) => title.normalize("NFKD").replace(/[^A-Za-z0-9]+/g, "-").replace(/^-+|-+$/g, "").toLowerCase().slice(0, 40).replace(/-+$/, "") || "experiment";

/** Shows the form in `place`; returns a function that ends that. `template` names what to begin with. */
export function experimentPage(place, template, { connection, fail }) {
  let rules, state, form, view = null, asked = 0, seed = 0, before = null, ended = false, estimated = "";
  const resize = new ResizeObserver(() => drawPicture());
  const later = debounced(look, LOOK), estimateLater = debounced(estimate, ESTIMATE);
  const box = (id, ...content) => h("div", { id }, ...content);

  async function load() {
    try {
      rules = await api.templates();
      connection(true);
      if (ended) return;
      const named = rules.templates.find((one) => one.name === template);
      const kept = drafts.get(DRAFT);
      if (named) {
        before = kept?.form ?? null;
        history.replaceState(null, "", "#/new"); // a reload keeps what is typed from now on
      }
      state = (named ? null : kept) ?? { form: formOf((named ?? rules.templates.find((one) => one.name === FIRST)).document), name: "", minutes: "5" };
      render();
    } catch (error) {
      trouble(error);
    }
  }

  function trouble(error) {
    if (ended) return;
    if (error instanceof Offline) {
      connection(false, error.message);
      if (!rules) place.replaceChildren(h("p", { class: "quiet" }, "The server does not answer."), h("button", { onclick: load }, "Try again"));
    } else if (!rules || error.code === 401) fail(error);
    else place.querySelector("#general").replaceChildren(h("p", { class: "error", role: "alert" }, error.message));
  }

  const documentNow = () => documentOf(state.form, rules);
  const keep = () => drafts.set(DRAFT, state);

  function changed() {
    keep();
    const name = place.querySelector("#train-name");
    if (name && !state.name) name.placeholder = slug(state.form.title);
    later();
  }

  /** Puts another experiment into the form; what was there can be had back. */
  function replace(document, words) {
    before = state.form;
    state.form = formOf(document);
    state.name = "";
    keep();
    render();
    announce(words);
  }

  function restore() {
    [state.form, before] = [before, null];
    keep();
    render();
  }

  // What it means.

  /** Asks the server what it understands, and shows that or all faults. An answer that was overtaken is dropped. */
  async function look() {
    const mine = ++asked;
    try {
      const fresh = await api.check({ document: documentNow(), seed });
      connection(true);
      if (ended || mine !== asked) return;
      show(fresh);
    } catch (error) {
      if (error instanceof Refusal && error.code === 429) later();
      else if (mine === asked) trouble(error);
    }
  }

  function show(fresh) {
    const rest = form.showFaults(fresh.faults);
    const count = fresh.faults.length;
    place.querySelector("#general").replaceChildren(
      count ? h("p", { class: "error", id: "fault-count" }, `${count === 1 ? "One thing is" : `${count} things are`} not right yet${count > rest.length ? ": see the fields" : ""}.`) : "",
      rest.length ? h("ul", { class: "error" }, rest.map((fault) => h("li", null, fault.message))) : "",
    );
    place.classList.toggle("faulty", count > 0);
    for (const button of place.querySelectorAll("[data-needs-whole]")) button.disabled = count > 0;
    if (count) {
      estimateLater.cancel();
      place.querySelector("#expected").textContent = "";
      place.querySelector("#stale").textContent = view ? "As it was before: the form has faults." : "";
      return;
    }
    view = fresh;
    place.querySelector("#stale").textContent = "";
    place.querySelector("#understood").replaceChildren(...view.words.map((line) => h("li", null, line)));
    place.querySelector("#file").textContent = view.toml;
    drawPicture(true);
    if (estimated !== view.toml) {
      place.querySelector("#expected").textContent = "Playing simulated campaigns to see how many measurements it takes \u2026";
      estimateLater();
    }
  }

  function drawPicture(always = false) {
    const drawing = place.querySelector("#picture");
    const width = Math.round(drawing?.clientWidth ?? 0);
    if (!view || !width || (!always && drawing.dataset.width === String(width))) return;
    drawing.dataset.width = String(width);
    drawing.replaceChildren(predictivePicture(width, view));
  }

  async function estimate() {
    if (!view) return; // the form was replaced meanwhile
    const toml = view.toml;
    const words = place.querySelector("#expected");
    try {
      const found = await api.estimate(documentNow());
      if (ended || view?.toml !== toml) return;
      estimated = toml;
      words.replaceChildren(h("strong", null, found.words));
    } catch (error) {
      if (ended || view?.toml !== toml) return;
      words.replaceChildren(`How many measurements it takes is not known: ${error.message}. `, h("button", { type: "button", class: "plain", onclick: () => ((words.textContent = "Once more \u2026"), estimate()) }, "Try again"));
    }
  }

  // In and out.

  async function openToml(toml, name) {
    try {
      const read = await api.check({ toml, seed });
      if (read.document) replace(read.document, `${name} is in the form.`);
      const faults = read.faults.map((fault) => fault.message);
      const notice = place.querySelector("#opened");
      notice.replaceChildren(faults.length ? h("div", { class: "notice" }, h("h2", null, read.document ? `${name} has faults` : `${name} cannot be read`), h("ul", null, faults.map((line) => h("li", null, line))), read.document ? h("p", null, "What could be read is in the form.") : null) : "");
      notice.scrollIntoView({ block: "nearest" });
    } catch (error) {
      trouble(error);
    }
  }

  async function train(event) {
    event.preventDefault();
    const error = place.querySelector("#train-error");
    error.textContent = "";
    const minutes = typedNumber(state.minutes);
    try {
      await api.train({ document: documentNow(), name: state.name.trim() || slug(state.form.title), minutes: Number.isFinite(minutes) ? minutes : state.minutes });
      location.hash = "#/training";
    } catch (problem) {
      if (problem instanceof Offline) connection(false, problem.message);
      const { field, allowed } = problem.fault ?? {};
      error.replaceChildren(["name", "minutes"].includes(field) ? `${field}: must be ${allowed}.` : `${problem.message}.`, field === "training" && problem.fault.value ? h("a", { href: "#/training" }, " Show it") : "");
      place.querySelector(`#train-${field}`)?.focus();
    }
  }

  // Drawing.

  function beginCard() {
    const choice = h("select", { id: "template", onchange: () => begin(choice.value) }, h("option", { value: "" }, "choose one \u2026"), rules.templates.map((one) => h("option", { value: one.name }, one.title)), h("option", { value: "empty" }, "An empty form"));
    function begin(name) {
      const chosen = rules.templates.find((one) => one.name === name);
      if (name) replace(chosen?.document ?? {}, chosen ? `The form holds: ${chosen.title}.` : "The form is empty.");
    }
    return h(
      "section", { class: "card", "aria-label": "Begin with" },
      h("div", { class: "begin-with" }, labelled("Begin with a template", choice), openFile("Open a file", ".toml,text/plain,application/toml", openToml)),
      before ? h("p", { class: "aside" }, "The form was replaced. ", h("button", { type: "button", class: "plain", id: "restore", onclick: restore }, "Put back what was there")) : null,
      box("opened"),
    );
  }

  function sideCard() {
    const others = () => ((seed += 1), look());
    return h(
      "aside", { class: "card side", "aria-label": "What it means" },
      h("div", { class: "row" }, h("h2", null, "Is this what you expect?"), h("button", { type: "button", class: "plain", onclick: others }, "Eight others")),
      h("p", { class: "quiet small" }, "Eight experiments that might happen, by what the form says."),
      h("p", { class: "warn small", id: "stale", role: "status" }),
      box("picture"),
      h("p", { id: "expected", role: "status" }),
      h("details", { class: "more", open: true }, h("summary", null, "What was understood"), h("ul", { id: "understood" })),
      h("details", { class: "more" }, h("summary", null, "As a file"), h("pre", { id: "file", tabindex: 0, "aria-label": "The experiment file" })),
      h("div", { class: "row" }, h("button", { type: "button", "data-needs-whole": true, onclick: () => saveFile(`${slug(state.form.title)}.toml`, view.toml, "application/toml") }, "Download the file")),
    );
  }

  function trainCard() {
    const name = textField("train-name", state.name, "text"), minutes = textField("train-minutes", state.minutes);
    name.placeholder = slug(state.form.title);
    name.addEventListener("input", () => ((state.name = name.value), keep()));
    minutes.addEventListener("input", () => ((state.minutes = minutes.value), keep()));
    return h(
      "section", { class: "card train", "aria-labelledby": "h-train" },
      h("h2", { id: "h-train" }, h("span", { class: "part-number", "aria-hidden": "true" }, "5"), "Train, then measure"),
      rules.can_train
        ? h(
            "form", { onsubmit: train, novalidate: true },
            h("p", { class: "quiet" }, "The server learns on simulated experiments of this kind. You can leave the page meanwhile."),
            h("div", { class: "numbers" }, labelled("Name of the campaign", name, "letters, digits, dots and dashes"), labelled("Minutes", minutes, "5 are enough for most")),
            box("general"), h("p", { class: "error", id: "train-error", role: "alert" }),
            h("button", { class: "primary", type: "submit", "data-needs-whole": true }, "Train"),
          )
        : [box("general"), h("p", null, "This server has no folder for models and cannot train. Download the file, and train it by command: cicpe train FILE --out DIR")],
    );
  }

  function render() {
    resize.disconnect();
    document.title = "New experiment - cicpe";
    form = experimentForm(state.form, rules, changed);
    place.replaceChildren(
      h("header", { class: "head" }, h("h1", null, "New experiment"), h("p", { class: "quiet" }, "Say what you choose, what you read, what you know and what you want to know. No code, in your own units.")),
      h("div", { class: "workbench" }, h("div", { class: "parts" }, beginCard(), form.element), sideCard(), trainCard()),
    );
    resize.observe(place.querySelector("#picture"));
    view = null;
    look();
  }

  load();
  return () => {
    ended = true;
    later.cancel();
    estimateLater.cancel();
    resize.disconnect();
    place.classList.remove("faulty");
  };
}
