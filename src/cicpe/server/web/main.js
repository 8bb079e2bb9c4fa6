// Which page is shown: `#/` is every campaign, `#/c/NAME` is one, `#/new` a new experiment, `#/training` its training.

import { token } from "./api.js";
import { campaignPage } from "./campaign.js";
import { h } from "./dom.js";
import { experimentPage } from "./experiment.js";
import { homePage } from "./home.js";
import { trainingPage } from "./training.js";

const main = document.getElementById("main");
const crumbs = document.getElementById("crumbs");
let leave = () => {};
let online = true;

function connection(well, message = "") {
  const place = document.getElementById("connection");
  if (online === well) return;
  online = well;
  place.replaceChildren(well ? "" : h("span", { class: "chip offline", title: message }, "offline: the server does not answer"));
  document.body.classList.toggle("offline", !well);
}

/** The page cannot be shown: a token is missing, or there is no such campaign. */
function fail(error) {
  if (error.code === 401) return askToken(token.get() ? "This token is wrong. Type the one that the server was started with." : "");
  main.replaceChildren(h("h1", null, "This cannot be shown"), h("p", null, error.message), h("p", null, h("a", { href: "#/" }, "All campaigns")));
}

function askToken(wrong) {
  token.drop();
  const field = h("input", { id: "token", type: "password", autocomplete: "off", "aria-describedby": "token-error", "aria-invalid": wrong ? "true" : null });
  const enter = (event) => (event.preventDefault(), token.set(field.value.trim()), show());
  main.replaceChildren(
    h("form", { class: "card narrow", onsubmit: enter }, h("h1", null, "A token is needed"), h("p", { class: "quiet" }, "It was given to the server when it was started."), h("div", { class: "field" }, h("label", { for: "token" }, "Token"), field), h("p", { class: "error", id: "token-error", role: "alert" }, wrong), h("button", { class: "primary", type: "submit" }, "Enter")),
  );
  field.focus();
}

function show() {
  leave();
  leave = () => {};
  main.replaceChildren(h("p", { class: "quiet" }, "One moment."));
  const [, kind, rest] = location.hash.match(/^#\/(c|new|training)(?:\/(.+))?$/) ?? [];
  const name = rest === undefined ? "" : decodeURIComponent(rest);
  const page = { c: name ? campaignPage : null, new: experimentPage, training: (place, _, ways) => trainingPage(place, ways) }[kind];
  crumbs.replaceChildren(...(page ? trail({ c: name, new: "New experiment", training: "Training" }[kind]) : []));
  leave = (page ?? ((place, _, ways) => homePage(place, ways)))(main, name, { connection, fail });
}

const trail = (here) => [h("a", { href: "#/" }, "Campaigns"), h("span", { "aria-hidden": "true" }, " / "), h("span", { "aria-current": "page" }, here)];

const [, given] = location.hash.match(/^#token=(.+)$/) ?? [];
if (given) {
  token.set(decodeURIComponent(given));
  history.replaceState(null, "", "#/");
}
document.querySelector(".skip-link").addEventListener("click", (event) => (event.preventDefault(), main.focus()));
window.addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
});
show();
