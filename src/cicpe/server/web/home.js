// Every campaign, and the form that begins another.

import { Offline, api } from "./api.js";
import { toleranceWords } from "./units.js";
import { figure, h } from "./dom.js";

export async function homePage(place, { connection, fail }) {
  try {
    const [{ campaigns }, { models }] = await Promise.all([api.campaigns(), api.models()]);
    connection(true);
    document.title = "Campaigns - cicpe";
    const recent = campaigns.slice().reverse();
    const rows = recent.map((campaign) => card(campaign));
    place.replaceChildren(
      h("header", { class: "head" }, h("h1", null, "Campaigns"), h("p", { class: "quiet" }, recent.length ? "What to measure next, when to stop, and what the answer is." : "There is none yet. Begin one below.")),
      h("ul", { class: "campaigns" }, rows),
      beginForm(models, recent.length === 0),
    );
    for (const [i, campaign] of recent.slice(0, 20).entries()) await describe(rows[i], campaign);
  } catch (error) {
    if (error instanceof Offline) {
      connection(false, error.message);
      place.replaceChildren(h("p", { class: "quiet" }, "The server does not answer."), h("button", { onclick: () => homePage(place, { connection, fail }) }, "Try again"));
    } else fail(error);
  }
}

function card(campaign) {
  return h(
    "li", { class: "card" },
    h("a", { href: `#/c/${encodeURIComponent(campaign.name)}` }, campaign.name),
    h("span", { class: "state" }),
    h("p", { class: "quiet" }, `${campaign.model.split("/").at(-1)}, epsilon ${figure(campaign.epsilon)}, delta ${figure(campaign.delta)}`),
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
  } catch (error) {
    row.querySelector(".state").replaceChildren(h("span", { class: "chip truncated", title: error.message }, "cannot be opened"));
  }
}

function beginForm(models, open) {
  const field = (id, label, input, hint) => h("div", { class: "field" }, h("label", { for: id }, label), input, h("p", { class: "quiet small", id: `${id}-hint` }, hint ?? ""));
  const text = (id, value = "", inputmode = "decimal") => h("input", { id, type: "text", inputmode, autocomplete: "off", spellcheck: "false", value, "aria-describedby": `${id}-hint` });
  const [name, epsilon, delta, seed, verify] = [text("new-name", "", "text"), text("new-epsilon"), text("new-delta", "0.1"), text("new-seed", "0", "numeric"), text("new-verify", "0", "numeric")];
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
    document.getElementById("new-epsilon-hint").textContent = own ? `within ${toleranceWords(about.units, own)}` : low === high ? `this model: ${figure(low)}` : `this model: ${figure(low)} to ${figure(high)}`;
    document.getElementById("new-delta-hint").textContent = `this model: ${figure(about.deltas[0])} or more`;
    document.getElementById("new-model-hint").textContent = `${title || about.problem}: ${about.queries} coordinate(s), ${about.observations} number(s) measured at each query, at most ${about.horizon} queries`;
    context.replaceChildren(...about.context.map((one) => field(`new-context-${one.name}`, one.name, text(`new-context-${one.name}`, one.default === null ? "" : figure(one.default, 4)), `${figure(one.low, 3)} to ${figure(one.high, 3)}${one.default === null ? "" : `; ${figure(one.default, 3)} if left empty`}`)));
  }
  async function begin(event) {
    event.preventDefault();
    error.textContent = "";
    const number = (input) => (input.value.trim() === "" ? null : Number(input.value.replace(",", ".")));
    const known = (about?.context ?? []).map((one) => [one.name, number(document.getElementById(`new-context-${one.name}`))]).filter(([, value]) => value !== null);
    try {
      const made = await api.begin({ name: name.value.trim(), model: choice.value, epsilon: number(epsilon), delta: number(delta), seed: number(seed), verify: number(verify), context: Object.fromEntries(known) });
      location.hash = `#/c/${encodeURIComponent(made.campaign.name)}`;
    } catch (problem) {
      error.textContent = problem.fault?.field ? `${problem.fault.field}: ${problem.fault.allowed}.` : problem.message;
      document.getElementById(`new-${problem.fault?.field}`)?.focus();
    }
  }
  const details = h(
    "details", { class: "card begin", open },
    h("summary", null, h("h2", null, "Begin a campaign")),
    h(
      "form", { onsubmit: begin, novalidate: true },
      h("div", { class: "numbers" }, field("new-name", "Name", name, "letters, digits, dots and dashes"), field("new-model", "Model", choice)),
      h("div", { class: "numbers" }, field("new-epsilon", "How far off the answer may be (epsilon)", epsilon), field("new-delta", "How often it may be farther off (delta)", delta), field("new-seed", "Seed", seed, "decides the queries, with the data"), field("new-verify", "Extra measurements before a stop", verify, "they show whether your situation is of the model's kind")),
      context,
      error,
      h("button", { class: "primary", type: "submit" }, "Begin"),
    ),
  );
  choice.addEventListener("change", chosen);
  if (models.length) setTimeout(() => chosen().catch(() => {}), 0);
  return details;
}
