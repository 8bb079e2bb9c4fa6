// The training on the server: how far it is, and what came of it.

import { Offline, Refusal, api } from "./api.js";
import { drafts, figure, h, labelled, textField } from "./dom.js";
import { formOf } from "./form.js";

const LOOK = 1000; // milliseconds between looks

const duration = (seconds) => (seconds >= 90 ? `about ${Math.round(seconds / 60)} min` : seconds >= 1 ? `about ${Math.max(5, 5 * Math.round(seconds / 5))} s` : "a little longer");
const sure = (delta) => `${figure(100 * (1 - delta), 3)} %`;

/** A bar with its share in words. */
export function progressBar({ share, seconds_left, stage }) {
  return h("div", { class: "progress" }, h("progress", { max: 1, value: String(share), "aria-label": "How much of the time is over" }), h("p", { class: "quiet small" }, `${Math.round(100 * share)} %, ${duration(seconds_left)} left: ${stage}`));
}

/** Opens the form with an experiment. */
export function change(experiment) {
  drafts.set("experiment", { form: formOf(experiment), name: "", minutes: "5" });
  location.hash = "#/new";
}

/** Shows the training in `place` and follows it; returns a function that ends that. */
export function trainingPage(place, { connection, fail }) {
  let now = null, shown = "", ended = false, busy = false;
  const timer = setInterval(look, LOOK);

  async function look() {
    if (busy || ended || (now && now.state !== "running" && now.state !== "none")) return;
    busy = true;
    try {
      now = await api.training();
      connection(true);
      if (!ended) render();
    } catch (error) {
      if (ended) return;
      if (error instanceof Offline) connection(false, error.message);
      else fail(error);
    } finally {
      busy = false;
    }
  }

  async function cancel() {
    try {
      now = await api.cancel(now.id);
    } catch (error) {
      if (!(error instanceof Refusal)) return connection(false, error.message);
      now = await api.training();
    }
    render();
  }

  /** While it runs only the bar moves: what is being read or pressed stays where it is. */
  function render() {
    document.title = `${now.state === "running" ? `${Math.round(100 * now.share)} %` : now.state} - training - cicpe`;
    if (shown === `${now.id} ${now.state}` && now.state === "running") {
      place.querySelector(".progress").replaceWith(progressBar(now));
      return place.querySelector("#tried").replaceChildren(...lines());
    }
    shown = `${now.id} ${now.state}`;
    place.replaceChildren(h("header", { class: "head" }, h("h1", null, HEADINGS[now.state]), now.state === "none" ? null : h("p", { class: "quiet" }, now.title || now.name)), CARDS[now.state]());
  }

  const HEADINGS = { none: "No training", running: "Training", done: "Trained", failed: "The training failed", cancelled: "The training was cancelled", interrupted: "The training was interrupted" };
  const lines = () => now.lines.map((line) => h("li", null, line));
  const again = () => h("button", { type: "button", class: "primary", onclick: () => change(now.document) }, "Back to the experiment");
  const over = (...words) => h("section", { class: "card" }, ...words.map((line) => h("p", null, line)), h("div", { class: "row" }, again(), h("a", { href: "#/" }, "All campaigns")));

  const CARDS = {
    none: () => h("section", { class: "card" }, h("p", null, "Nothing is being trained."), h("p", null, h("a", { class: "button primary", href: "#/new" }, "New experiment"))),
    running: () => h("section", { class: "card" }, progressBar(now), h("p", { class: "quiet" }, "It goes on if you leave this page. Others can use the server meanwhile; a second training has to wait."), h("ul", { id: "tried", class: "quiet small" }, lines()), h("div", { class: "row" }, h("button", { type: "button", id: "cancel", onclick: cancel }, "Cancel"))),
    failed: () => over(`Nothing is kept of it: ${now.message}.`),
    cancelled: () => over("Nothing is kept of it."),
    interrupted: () => over(`Nothing is kept of it: ${now.message}. The experiment is not lost: train it once more.`),
    done: doneCard,
  };

  function doneCard() {
    const { delta, wanted_delta: wanted, expected_queries: expected, at_most: most } = now;
    if (delta === null) return h("section", { class: "card" }, h("p", { class: "warn strong" }, "It is not reliable yet, and promises nothing."), h("p", null, "Train it for more minutes, allow more measurements, or ask less exactly."), h("div", { class: "row" }, again()));
    const name = textField("begin-name", now.name, "text");
    const error = h("p", { class: "error", role: "alert" });
    async function begin(event) {
      event.preventDefault();
      try {
        const made = await api.begin({ name: name.value.trim(), model: now.model, delta });
        location.hash = `#/c/${encodeURIComponent(made.campaign.name)}`;
      } catch (problem) {
        error.textContent = problem.fault?.field ? `${problem.fault.field}: must be ${problem.fault.allowed}.` : problem.message;
      }
    }
    return h(
      "section", { class: "card" },
      delta > wanted ? h("p", { class: "warn" }, `It can be ${sure(delta)} sure, and not ${sure(wanted)} as you asked: train it for more minutes, or begin with that.`) : null,
      h("p", { class: "strong" }, `${expected === null ? "" : `Expect about ${Math.max(1, Math.round(expected))} measurements, and `}at most ${most}, to be ${sure(delta)} sure.`),
      h("form", { onsubmit: begin, novalidate: true }, labelled("Name of the campaign", name), error, h("div", { class: "row" }, h("button", { class: "primary", type: "submit" }, "Begin the campaign"), h("button", { type: "button", class: "plain", onclick: () => change(now.document) }, "Change the experiment"))),
      now.lines.length ? h("details", { class: "more" }, h("summary", null, "What was tried"), h("ul", { class: "quiet small" }, lines())) : null,
    );
  }

  look();
  return () => {
    ended = true;
    clearInterval(timer);
  };
}
