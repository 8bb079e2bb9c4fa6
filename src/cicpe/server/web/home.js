// Every campaign, and the form that begins another.

import { Offline, api } from "./api.js";
import { figure, h, labelled, textField } from "./dom.js";
import { progressBar } from "./training.js";
import { toleranceWords } from "./units.js";

const LOOK = 2000; // milliseconds between looks at a training

/** Shows every campaign in `place`; returns a function that ends that. */
export function homePage(place, { connection, fail }) {
  let ended = false;
  const timer = setInterval(follow, LOOK);

  async function load() {
    try {
      const [{ campaigns }, { models }, training, { templates }] = await Promise.all([api.campaigns(), api.models(), api.training(), api.templates()]);
      if (ended) return;
      connection(true);
      document.title = "Campaigns - cicpe";
      const recent = campaigns.slice().reverse();
      const rows = recent.map((campaign) => card(campaign));
      const content = [
        h("header", { class: "head" }, h("div", { class: "row spread" }, h("h1", null, "Campaigns"), recent.length ? h("a", { class: "button primary", href: "#/new" }, "New experiment") : null), h("p", { class: "quiet" }, "What to measure next, when to stop, and what the answer is.")),
        h("div", { id: "training" }, trainingCard(training)),
        recent.length ? h("ul", { class: "campaigns" }, rows) : firstSteps(templates),
        beginForm(models),
      ];
      place.replaceChildren(...content);
      for (const [i, campaign] of recent.slice(0, 20).entries()) if (!ended) await describe(rows[i], campaign);
    } catch (error) {
      if (ended) return;
      if (error instanceof Offline) {
        connection(false, error.message);
        place.replaceChildren(h("p", { class: "quiet" }, "The server does not answer."), h("button", { onclick: load }, "Try again"));
      } else fail(error);
    }
  }

  /** Moves the bar of a training that is under way. */
  async function follow() {
    const box = place.querySelector("#training");
    if (document.hidden || !box?.querySelector("progress")) return;
    try {
      const now = await api.training();
      if (!ended) box.replaceChildren(...[trainingCard(now)].filter(Boolean));
    } catch {
      // the next look may find it
    }
  }

  load();
  return () => {
    ended = true;
    clearInterval(timer);
  };
}

/** What a training says here; nothing where there was none, or where it was cancelled. */
function trainingCard(now) {
  if (now.state === "none" || now.state === "cancelled") return null;
  const words = { running: "is being trained", done: "is trained", failed: "could not be trained", interrupted: "was not trained to the end" }[now.state];
  const link = { running: "Show it", done: "Begin its campaign", failed: "What happened", interrupted: "What happened" }[now.state];
  return h("section", { class: "card", "aria-label": "Training" }, h("p", null, h("strong", null, now.name), ` ${words}. `, h("a", { href: "#/training" }, link)), now.state === "running" ? progressBar(now) : null);
}

/** What to do where nothing was done yet. */
function firstSteps(templates) {
  return h(
    "section", { class: "card first", "aria-labelledby": "h-first" },
    h("h2", { id: "h-first" }, "What to do first"),
    h(
      "ol", null,
      h("li", null, h("strong", null, "Describe your experiment"), " in a form: what you choose, what you read, what you know, what you want to know. Beside it you see experiments of that kind."),
      h("li", null, h("strong", null, "Train"), " for some minutes, on this server."),
      h("li", null, h("strong", null, "Measure"), " where the page says, and type what you read. It says when to stop, and what the answer is."),
    ),
    h("p", null, h("a", { class: "button primary", href: "#/new" }, "Describe your experiment")),
    h("p", { class: "quiet" }, "Or begin with one of these:"),
    h("ul", { class: "templates" }, templates.map((one) => h("li", null, h("a", { href: `#/new/${encodeURIComponent(one.name)}` }, one.title), h("span", { class: "quiet small" }, one.about)))),
  );
}

function card(campaign) {
  return h(
    "li", { class: "card" },
    h("a", { href: `#/c/${encodeURIComponent(campaign.name)}` }, campaign.name),
    h("span", { class: "state" }),
    h("p", { class: "quiet about" }, `${campaign.model.split("/").at(-1)}, epsilon ${figure(campaign.epsilon)}, delta ${figure(campaign.delta)}`),
    h("p", { class: "quiet small" }, `begun ${campaign.created.slice(0, 10)}, ${campaign.version} ${campaign.version === 1 ? "entry" : "entries"}`),
  );
}

/** What a campaign says now; one whose model is gone stays as it is. */
async function describe(row, campaign) {
  try {
    const { status } = await api.view(campaign.id);
    const state = status.truncated ? "truncated" : status.stopped ? "stopped" : "asking";
    const words = { truncated: "out of queries", stopped: "stopped", asking: `query ${status.step}` }[state];
    row.querySelector(".state").replaceChildren(h("span", { class: `chip ${state}` }, words));
    if (status.units?.title) row.querySelector(".about").textContent = `${status.units.title}, within ${toleranceWords(status.units, status.epsilon)}, ${figure(100 * (1 - status.delta), 3)} % sure`;
  } catch (error) {
    row.querySelector(".state").replaceChildren(h("span", { class: "chip truncated", title: error.message }, "cannot be opened"));
  }
}

function beginForm(models) {
  const [name, epsilon, delta, seed, verify] = [textField("new-name", "", "text"), textField("new-epsilon"), textField("new-delta", "0.1"), textField("new-seed", "0", "numeric"), textField("new-verify", "0", "numeric")];
  const choice = h("select", { id: "new-model", "aria-describedby": "new-model-hint" }, models.map((model) => h("option", { value: model }, model)));
  const context = h("div", { class: "numbers" });
  const error = h("p", { class: "error", role: "alert" });
  let about = null;
  async function chosen() {
    about = null;
    const fresh = await api.model(choice.value);
    if (fresh.name !== choice.value) return; // chosen again in the meantime
    about = fresh;
    const { low, high } = about.epsilon;
    const { epsilon: own, delta: ownDelta, title } = about.units ?? {};
    epsilon.value = figure(own ?? high);
    if (ownDelta) delta.value = figure(ownDelta);
    for (const [input, said] of [[epsilon, own], [delta, ownDelta]]) input.dataset.own = said ? input.value : "";
    document.getElementById("new-epsilon-hint").textContent = own ? `within ${toleranceWords(about.units, own)}` : low === high ? `this model: ${figure(low)}` : `this model: ${figure(low)} to ${figure(high)}`;
    document.getElementById("new-delta-hint").textContent = `this model: ${figure(about.deltas[0])} or more`;
    document.getElementById("new-model-hint").textContent = `${title || about.problem}: ${about.queries} coordinate(s), ${about.observations} number(s) measured at each query, at most ${about.horizon} queries`;
    context.replaceChildren(...about.context.map((one) => labelled(one.name, textField(`new-context-${one.name}`, one.default === null ? "" : figure(one.default, 4)), `${figure(one.low, 3)} to ${figure(one.high, 3)}${one.default === null ? "" : `; ${figure(one.default, 3)} if left empty`}`)));
  }
  async function begin(event) {
    event.preventDefault();
    error.textContent = "";
    const number = (input) => (input.value.trim() === "" ? null : Number(input.value.replace(",", ".")));
    const wanted = (input) => (input.value === input.dataset.own ? null : number(input)); // what the experiment says, to the last digit
    const known = (about?.context ?? []).map((one) => [one.name, number(document.getElementById(`new-context-${one.name}`))]).filter(([, value]) => value !== null);
    try {
      const made = await api.begin({ name: name.value.trim(), model: choice.value, epsilon: wanted(epsilon), delta: wanted(delta), seed: number(seed), verify: number(verify), context: Object.fromEntries(known) });
      location.hash = `#/c/${encodeURIComponent(made.campaign.name)}`;
    } catch (problem) {
      error.textContent = problem.fault?.field ? `${problem.fault.field}: ${problem.fault.allowed}.` : problem.message;
      document.getElementById(`new-${problem.fault?.field}`)?.focus();
    }
  }
  const details = h(
    "details", { class: "card begin" },
    h("summary", null, h("h2", null, "Begin a campaign with a model that is there")),
    h(
      "form", { onsubmit: begin, novalidate: true },
      h("div", { class: "numbers" }, labelled("Name", name, "letters, digits, dots and dashes"), labelled("Model", choice)),
      h("div", { class: "numbers" }, labelled("How far off the answer may be (epsilon)", epsilon), labelled("How often it may be farther off (delta)", delta), labelled("Seed", seed, "decides the queries, with the data"), labelled("Extra measurements before a stop", verify, "they show whether your situation is of the model's kind")),
      context,
      error,
      h("button", { class: "primary", type: "submit" }, "Begin"),
    ),
  );
  choice.addEventListener("change", chosen);
  details.addEventListener("toggle", () => details.open && !about && models.length && chosen().catch(() => {}));
  return details;
}
