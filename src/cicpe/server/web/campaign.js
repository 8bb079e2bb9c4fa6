// One campaign: the open query, the answer, how sure it is, the history, the log, and every change to it.

import { Offline, Refusal, api } from "./api.js";
import { announce, drafts, figure, freshKey, h, numberFields, openFile, point, saveFile, typedNumber, unbroken } from "./dom.js";
import { answerInterval, answerName, answerValue, answerWords, measurementLabels, measurementReader, observationWords, queryWords, settingLabel, settingName, settingValue, toleranceWords } from "./units.js";
import { confidencePlot, intervalBar, spacePlot } from "./plots.js";

const LOOK = 4000; // milliseconds between looks for what others did
const STATES = { asking: "asking", stopped: "stopped", truncated: "out of queries", conflict: "changed elsewhere", offline: "offline" };

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const short = (model) => model.split("/").at(-1);
const nextName = (name) => (/-\d{1,6}$/.test(name) ? name.replace(/\d+$/, (number) => String(Number(number) + 1)) : `${name.slice(0, 60)}-2`);
const when = (text) => text.slice(0, 16).replace("T", " ");

/** Shows a campaign in `place` and keeps it up to date; returns a function that ends that. */
export function campaignPage(place, name, { connection, fail }) {
  let view, plot, log, news = null, ended = false, busy = false;
  const resize = new ResizeObserver(() => drawPlots());
  const timer = setInterval(look, LOOK);
  window.addEventListener("beforeprint", unfold);

  // What is typed for a query, and a value whose query is no longer open: both outlive a reload of the page.
  const draft = {
    get: () => drafts.get(view.campaign.id),
    set: (typed) => drafts.set(view.campaign.id, { version: view.status.version, query: view.status.query, typed }),
    drop: () => drafts.drop(view.campaign.id),
  };
  const kept = { get: () => drafts.get(`${view.campaign.id}:kept`), set: (value) => drafts.set(`${view.campaign.id}:kept`, value), drop: () => drafts.drop(`${view.campaign.id}:kept`) };
  const placed = (query) => queryWords(view.status.units, query);
  const observed = (observation) => observationWords(view.status.units, observation);
  const answered = () => answerWords(view.status);
  const state = () => (news ? "conflict" : view.status.truncated ? "truncated" : view.status.stopped ? "stopped" : "asking");

  // Reading.

  async function load() {
    const fresh = await api.view(name);
    [plot, log] = await Promise.all([api.plot(name), api.log(name)]);
    view = plot.version === fresh.status.version ? fresh : await api.view(name);
    news = null;
    putAside();
    connection(true);
  }

  async function refresh(focus) {
    try {
      await load();
      if (!ended) render(focus);
    } catch (error) {
      trouble(error);
    }
  }

  /** A value that was typed for a query before: put aside, not dropped. */
  function putAside() {
    const before = draft.get();
    if (!before || before.version === view.status.version) return;
    draft.drop();
    const observation = before.typed.map(measurementReader(view.status.units));
    if (before.query && observation.every((value) => value !== null)) kept.set({ query: before.query, observation });
  }

  /** Looks for what others did. Shown at once where nothing is being typed, and offered otherwise. */
  async function look() {
    if (!view || busy || document.hidden || ended) return;
    try {
      const { version } = await api.ask(name);
      connection(true);
      if (busy || version === view.status.version || news) return;
      if (!typing()) return refresh();
      const { events } = await api.log(name);
      if (!busy) tellNews(events.slice(view.status.version), null);
    } catch (error) {
      trouble(error);
    }
  }

  const typing = () => [...place.querySelectorAll("input")].some((input) => input.value.trim() !== "" && input.value !== input.defaultValue);

  function trouble(error) {
    if (ended) return;
    if (error instanceof Offline) connection(false, error.message);
    else if (!view || error.code === 401) fail(error);
    else console.error(error);
  }

  // Changing.

  /** Sends a change; `form` says what was wrong with it, and a change that was overtaken is kept. */
  async function change(kind, body, { form, key = freshKey(), said, settled, focus = "#observe-0", mine = null } = {}) {
    if (busy) return false;
    busy = true;
    place.classList.add("busy");
    try {
      view = await api.change(name, kind, { ...body, expected_version: view.status.version }, key);
      connection(true);
      settled?.();
      [plot, log] = await Promise.all([api.plot(name), api.log(name)]);
      news = null;
      putAside();
      render(focus);
      announce(said ? said() : "Recorded.");
      return true;
    } catch (error) {
      if (error instanceof Refusal && error.code === 409 && error.fault.since) tellNews(error.fault.since, mine);
      else if (error instanceof Refusal && error.fault.needs_confirmation && form) doubt(form, error);
      else if (error instanceof Refusal && error.code !== 401) (form?.refuse ?? announce)(sentence(error));
      else if (error instanceof Offline) {
        connection(false, error.message);
        form?.refuse("The server does not answer. What you typed is kept: record it again when it does.");
      } else trouble(error);
      return false;
    } finally {
      busy = false;
      place.classList.remove("busy");
    }
  }

  /** A value that is possible but not plausible: the same one, sent a second time, is recorded. */
  function doubt(form, error) {
    form.refuse(`Is that right? Expected ${error.fault.allowed}. If it is, press the button once more.`);
    form.doubted = form.inputs.map((input) => input.value).join();
  }

  const confirmed = (form) => form.doubted !== undefined && form.doubted === form.inputs.map((input) => input.value).join();

  const sentence = ({ fault, message }) => (fault.field && fault.field !== "campaign" ? `${fault.field}: ${fault.allowed}.` : message);

  /** Others were first: says what happened, keeps what was typed, and offers to go on. */
  function tellNews(since, mine) {
    news = { since, mine };
    const notice = place.querySelector("#notice");
    notice.replaceChildren(
      h(
        "div", { class: "notice", "data-notice": "conflict" },
        h("h2", null, "Someone else was first"),
        h("p", null, since.length ? `Since you looked: ${since.map((entry) => entry.words).join("; ")}.` : "The campaign has changed since you looked."),
        mine ? h("p", null, h("strong", null, `Your value ${observed(mine.observation)} was not recorded. `), `It belongs to the query at ${placed(mine.query)}, and is kept.`) : null,
        h("button", { class: "primary", onclick: () => refresh("#observe-0") }, "Show the campaign as it is now"),
      ),
    );
    place.querySelector("#state").replaceWith(chip());
    announce("Someone else has changed this campaign. Nothing of yours was recorded, and nothing you typed is lost.");
    notice.querySelector("button").focus();
  }

  // Drawing.

  const chip = () => h("span", { id: "state", class: `chip ${state()}` }, STATES[state()]);

  function render(focus) {
    resize.disconnect();
    const { campaign, status } = view;
    document.title = `${campaign.name}: ${status.stopped ? STATES[state()] : `query ${status.step}`} - cicpe`;
    const context = Object.entries(campaign.context).map(([key, value]) => `, ${key} ${figure(value)}`).join("");
    const sections = [
      h(
        "header", { class: "head" },
        h("div", { class: "row" }, h("h1", null, campaign.name), chip()),
        h("p", { class: "quiet" }, `${status.units?.title || short(campaign.model)}${context}. An answer within ${toleranceWords(status.units, campaign.epsilon)}, wrong at most ${figure(campaign.delta)} of the time.`),
      ),
      h("div", { id: "notice" }),
      alarmNotice(status),
      status.stopped
        ? h("div", { class: "grid" }, resultCard(), confidenceCard(), spaceCard())
        : h("div", { class: "grid" }, h("div", { class: "column" }, queryCard(), confidenceCard()), h("div", { class: "column" }, answerCard(), spaceCard())),
      historyCard(),
      logCard(),
      particulars(),
    ];
    place.replaceChildren(...sections.filter(Boolean));
    drawPlots();
    for (const drawing of place.querySelectorAll(".drawing")) resize.observe(drawing);
    if (focus) place.querySelector(focus)?.focus();
  }

  /** Whether the data looks like what the model was trained for: its promise holds only there. */
  function alarmNotice({ in_prior, p_value, held, released }) {
    if (in_prior !== "no" && in_prior !== "doubtful") return null;
    const how = in_prior === "no" ? "does not look" : "hardly looks";
    const release = () => change("release", {}, { said: () => "The stop was released.", focus: null });
    const error = h("p", { class: "error", role: "alert" });
    return h(
      "div", { class: "notice", "data-notice": "alarm" },
      h("h2", null, `What was measured ${how} like what the model was trained for`),
      h("p", null, `Data of its own kind looks as odd in at most ${figure(100 * p_value, 2)} % of campaigns, and the promise holds only for that kind. Is there a slip among the values below? It can be corrected.`),
      held ? h("p", null, "The campaign is as sure as was asked for, and does not stop before you have looked at this.") : null,
      in_prior === "no" ? h("p", null, "Where it is none, this run looks spoilt: begin it anew. What was measured stays here.") : null,
      h("div", { class: "row" }, in_prior === "no" ? h("button", { type: "button", id: "restart", onclick: () => restart(nextName(view.campaign.name), error) }, "Restart") : null, held ? h("button", { type: "button", id: "release", onclick: release }, "I have looked: stop all the same") : null),
      error,
      released ? h("p", null, "Someone has looked, and let it stop all the same.") : null,
    );
  }

  /** Begins the campaign anew: the same model and settings, nothing measured. A name that is taken is counted on. */
  async function restart(fresh, error, tries = 20) {
    try {
      location.hash = `#/c/${encodeURIComponent((await api.restart(name, fresh)).campaign.name)}`;
    } catch (problem) {
      if (problem instanceof Refusal && problem.fault.field === "name" && tries) return restart(nextName(fresh), error, tries - 1);
      error.textContent = problem instanceof Refusal ? sentence(problem) : problem.message;
    }
  }

  const confidenceCard = () => h("section", { class: "card", "aria-labelledby": "h-confidence" }, h("h2", { id: "h-confidence" }, "Confidence after each step"), h("p", { class: "quiet" }, view.status.reason.words), h("div", { id: "confidence", class: "drawing" }));

  const spaceCard = () => h("section", { class: "card space", "aria-labelledby": "h-space" }, h("h2", { id: "h-space" }, "Query space"), h("div", { id: "space", class: "drawing" }), legend(view.setting, view.status));

  function drawPlots() {
    const draw = (id, make) => {
      const box = place.querySelector(id);
      const width = Math.round(box?.clientWidth ?? 0);
      if (!width || box.dataset.width === String(width)) return;
      box.dataset.width = String(width);
      box.replaceChildren(make(width));
    };
    draw("#confidence", (width) => confidencePlot(width, view, plot.trace));
    draw("#space", (width) => spacePlot(width, view, plot));
  }

  function legend({ query, answer_lies }, status) {
    const items = [["swatch seen", "measured"]];
    if (status.query) items.push(["swatch next", "next"]);
    if (status.attached) items.push(["swatch attached", "measured elsewhere"]);
    if (status.corrected) items.push(["swatch corrected", "corrected"]);
    if (answer_lies) items.push(["swatch answer", "answer"], ["swatch region", `${figure(100 * (1 - status.delta), 3)} % credible region`]);
    if (status.skipped) items.push(["swatch skip", "skipped"]);
    return h("ul", { class: `legend ${query.length > 2 ? "strips" : ""}` }, items.map(([type, text]) => h("li", null, h("span", { class: type, "aria-hidden": "true" }), text)));
  }

  function coordinates(values, big, name = (i) => `x${i + 1}`, text = (i, value) => figure(value)) {
    const named = view.status.units?.settings?.length > 0;
    if (values.length === 1 && !named) return h("p", { class: big ? "huge" : "large" }, text(0, values[0]));
    return h("dl", { class: `coordinates ${big ? "big" : ""}` }, values.map((value, i) => h("div", null, h("dt", null, name(i)), h("dd", null, text(i, value)))));
  }
  const settingsShown = (values, big) => coordinates(values, big, (i) => settingName(view.status.units, i), (i, value) => settingValue(view.status.units, i, value));
  const answersShown = (values, big) => coordinates(values, big, (i) => answerName(view.status.units, i), (i, value) => answerValue(view.status, i, value));

  const measured = (count) => measurementLabels(view.status.units, count);

  /** What can be typed, once where all entries are alike. */
  const kinds = ({ observed }) => (new Set(observed).size === 1 ? `Each is ${observed[0]}.`.replace("Each is", observed.length === 1 ? "It is" : "Each is") : observed.map((words, i) => `y${i + 1}: ${words}`).join("; "));

  function queryCard() {
    const { status, setting } = view;
    const fields = numberFields({ id: "observe", labels: measured(setting.observations), draft: { get: () => draft.get()?.typed, set: draft.set }, big: setting.observations === 1, hint: kinds(setting), words: setting.observed, read: measurementReader(view.status.units) });
    let sent = { text: "", key: freshKey() };
    const left = status.expected_remaining_queries;
    async function record(event) {
      event.preventDefault();
      const observation = fields.read();
      if (!observation) return;
      const set = reallySet();
      if (!set) return;
      const text = JSON.stringify([observation, set]);
      if (sent.text !== text) sent = { text, key: freshKey() }; // the same value, sent again after a lost answer, counts once
      await change("tell", { observation, at: set, confirm: confirmed(fields) }, { form: fields, key: sent.key, mine: { query: status.query, observation }, said: () => spoken(status.step), settled: draft.drop });
    }
    /** What was really set, by name, where it was something else; null where that cannot be read. */
    function reallySet() {
      const typed = settingInputs.map((input, i) => [settingName(status.units, i), input.value]).filter(([, text]) => text.trim());
      const wrong = typed.find(([, text]) => !Number.isFinite(typedNumber(text)));
      if (wrong) fields.refuse(`${wrong[0]}: \u201c${wrong[1]}\u201d is not a number.`);
      return wrong ? null : Object.fromEntries(typed.map(([key, text]) => [key, typedNumber(text)]));
    }
    const settingInputs = (status.units?.settings ?? []).map((_, i) => h("input", { id: `set-${i}`, type: "text", inputmode: "decimal", autocomplete: "off", placeholder: figure(status.query[i], 6) }));
    const other = settingInputs.length ? h("details", { class: "more no-print" }, h("summary", null, "Something else was really set"), h("div", { class: "numbers" }, settingInputs.map((input, i) => h("div", { class: "field" }, h("label", { for: input.id }, `Really set: ${settingLabel(status.units, i)}`), input)))) : null;
    const say = (word) => () => ((fields.inputs[0].value = word), form.requestSubmit());
    const words = status.units?.readout?.kind === "yes/no" ? h("div", { class: "row no-print" }, ["yes", "no"].map((word) => h("button", { type: "button", class: "answer-button", onclick: say(word) }, word[0].toUpperCase() + word.slice(1)))) : null;
    const form = h("form", { id: "observe", onsubmit: record, novalidate: true }, words, fields.element, other, h("div", { class: "row" }, h("button", { class: "primary", type: "submit" }, "Record"), undoButton()));
    return h(
      "section", { class: "card query", "aria-labelledby": "h-query" },
      h("div", { class: "row" }, h("h2", { id: "h-query" }, `Query ${status.step}`), h("span", { class: "quiet" }, `${left === null ? "" : `about ${Math.max(1, Math.round(left))} more to expect, `}at most ${Math.max(setting.horizon - status.history.length, 1)}`)),
      h("p", { class: "quiet" }, status.verifying ? "It is sure enough. One more measurement, to check that nothing is off, here:" : "Measure here:"),
      settingsShown(status.query, true),
      form,
      keptNote(),
      skipForm(),
    );
  }

  function spoken(step) {
    const { status } = view;
    const sure = `Confidence ${figure(status.confidence, 3)}.`;
    if (status.stopped) return `Step ${step} recorded. The campaign has stopped: the answer is ${answered()}. ${sure}`;
    return `Step ${step} recorded. ${sure} Query ${status.step}: ${placed(status.query)}.`;
  }

  function keptNote() {
    const mine = kept.get();
    if (!mine) return null;
    const { query, observation } = mine;
    const settle = () => (kept.drop(), render("#observe-0"));
    const attach = () => change("attach", { query, observation }, { said: () => "Recorded as measured there.", settled: kept.drop });
    return h(
      "div", { class: "aside", id: "kept" },
      h("p", null, `You had typed ${observed(observation)} for the query at ${placed(query)}, which is no longer open.`),
      h("div", { class: "row" }, h("button", { type: "button", onclick: attach }, "Record it as measured there"), h("button", { type: "button", class: "plain", onclick: settle }, "Discard it")),
    );
  }

  function skipForm() {
    const reason = h("input", { id: "skip-reason", type: "text", maxlength: 500, autocomplete: "off" });
    const skip = (event) => (event.preventDefault(), change("skip", { reason: reason.value }, { said: () => `Skipped. Query ${view.status.step}: ${placed(view.status.query)}.` }));
    return h(
      "details", { class: "more no-print" }, h("summary", null, "It cannot be measured here"),
      h("form", { onsubmit: skip }, h("div", { class: "field" }, h("label", { for: "skip-reason" }, "Why (for the log)"), reason), h("button", { type: "submit" }, "Skip this query")),
    );
  }

  function undoButton() {
    if (!log.events.some((entry) => entry.in_force)) return null;
    return h("button", { type: "button", class: "plain no-print", onclick: () => change("undo", {}, { said: () => "The last entry was taken back." }) }, "Undo the last entry");
  }

  function answerTable() {
    const { status, setting } = view;
    const percent = `${figure(100 * (1 - status.delta), 3)} %`;
    if (status.recommendation.length === 1) {
      return [
        answersShown(status.recommendation, status.stopped),
        h("p", { class: "quiet" }, `${percent} credible interval: ${answerInterval(status, 0)}`),
        intervalBar(setting.answer[0], status.credible_region[0], status.recommendation[0]),
      ];
    }
    return h(
      "table", { class: "answer" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, h("span", { class: "hidden-text" }, "coordinate")), h("th", { scope: "col", class: "figure" }, "answer"), h("th", { scope: "col", class: "figure" }, `${percent} credible`), h("th", { scope: "col", class: "wide" }, h("span", { class: "hidden-text" }, "drawn")))),
      h(
        "tbody", null,
        status.recommendation.map((value, i) => {
          return h("tr", null, h("th", { scope: "row" }, answerName(status.units, i)), h("td", { class: "figure strong" }, answerValue(status, i, value)), h("td", { class: "figure quiet" }, answerInterval(status, i)), h("td", { class: "wide" }, intervalBar(setting.answer[i], status.credible_region[i], value)));
        }),
      ),
    );
  }

  const answerCard = () => h("section", { class: "card", "aria-labelledby": "h-answer" }, h("h2", { id: "h-answer" }, "Best answer so far"), answerTable());

  function resultCard() {
    const { status } = view;
    return h(
      "section", { class: `card result ${state()}`, "aria-labelledby": "h-answer" },
      h("h2", { id: "h-answer" }, status.truncated ? "The best answer when the queries ran out" : "The answer"),
      answerTable(),
      h("p", null, `After ${plural(status.step, "step")}, with a confidence of ${figure(status.confidence, 3)}.`),
      status.truncated ? h("p", { class: "warn" }, "The model has made every query that it can, and is not as sure as was asked for.") : null,
      h("div", { class: "row no-print" }, h("button", { class: "primary", type: "button", onclick: () => window.print() }, "Print the report"), h("button", { type: "button", onclick: save }, "Export"), h("button", { type: "button", onclick: saveTable }, "Table (CSV)"), undoButton()),
      keptNote(),
    );
  }

  const save = async () => saveFile(`${view.campaign.name}.json`, JSON.stringify(await api.exported(name), null, 1), "application/json");
  const saveTable = async () => saveFile(`${view.campaign.name}.csv`, await api.table(name), "text/csv");

  // The history and what can be done to it.

  function historyCard() {
    const { status, setting } = view;
    const rows = status.history.map((step, i) => historyRow(step, i)).reverse();
    const notes = ["attached", "corrected", "skipped"].filter((what) => status[what]).map((what) => `${status[what]} ${what}`);
    return h(
      "section", { class: "card", "aria-labelledby": "h-history" },
      h("div", { class: "row" }, h("h2", { id: "h-history" }, "History"), h("span", { class: "quiet" }, [plural(status.history.length, "step"), ...notes].join(", "))),
      rows.length
        ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": "h-history" }, h("table", { class: "history" }, h("thead", null, h("tr", null, ["Step", "Query", "Measured", "Note"].map((text) => h("th", { scope: "col" }, text)), h("th", { scope: "col", class: "no-print" }, h("span", { class: "hidden-text" }, "Action")))), h("tbody", null, rows)))
        : h("p", { class: "quiet" }, "Nothing yet. Every measurement will be listed here, and can be corrected."),
      attachForm(setting),
    );
  }

  function historyRow(step, i) {
    const note = [step.source === "attached" ? "measured elsewhere" : null, step.first_observation ? `corrected, was ${observed(step.first_observation)}` : null].filter(Boolean).join("; ");
    const row = h(
      "tr", null,
      h("th", { scope: "row", "data-label": "Step" }, String(i + 1)), h("td", { class: "figures", "data-label": "Query" }, view.status.units?.settings?.length ? placed(step.query) : unbroken(step.query, step.query.length > 3 ? 4 : 5)), h("td", { class: "figures strong", "data-label": "Measured" }, view.status.units?.readout ? observed(step.observation) : unbroken(step.observation)), h("td", { class: "quiet note" }, note),
      h("td", { class: "no-print end" }, h("button", { type: "button", class: "plain", id: `correct-${i + 1}`, "aria-label": `Correct step ${i + 1}`, onclick: () => correctRow(row, step, i) }, "Correct")),
    );
    return row;
  }

  function correctRow(row, step, i) {
    const labels = step.observation.length === 1 ? [`What was really measured at step ${i + 1}`] : step.observation.map((_, k) => `y${k + 1}`);
    const fields = numberFields({ id: "correct", labels, words: view.setting.observed, read: measurementReader(view.status.units) });
    const shown = view.status.units?.readout ? [observed(step.observation)] : step.observation.map(String);
    fields.inputs.forEach((input, k) => (input.defaultValue = input.value = shown[k]));
    const cancel = () => (editor.replaceWith(row), row.querySelector("button").focus());
    const submit = (event) => {
      event.preventDefault();
      const observation = fields.read();
      if (observation) change("correct", { step: i + 1, observation, confirm: confirmed(fields) }, { form: fields, focus: `#correct-${i + 1}`, said: () => `Step ${i + 1} corrected. Confidence ${figure(view.status.confidence, 3)}.` });
    };
    const editor = h(
      "tr", { class: "editing" }, h("th", { scope: "row" }, String(i + 1)),
      h("td", { colspan: 4 }, h("form", { onsubmit: submit, onkeydown: (event) => event.key === "Escape" && cancel() }, h("p", { class: "quiet" }, `At ${placed(step.query)}. The log keeps both values; everything after is computed anew.`), fields.element, h("div", { class: "row" }, h("button", { class: "primary", type: "submit" }, "Save the correction"), h("button", { type: "button", class: "plain", onclick: cancel }, "Cancel")))),
    );
    row.replaceWith(editor);
    fields.inputs[0].select();
  }

  function attachForm(setting) {
    const names = setting.query.map(({ low, high }, i) => `${settingLabel(view.status.units, i)}, ${figure(low, 3)} to ${figure(high, 3)}`);
    const query = numberFields({ id: "attach-query", labels: names });
    const values = numberFields({ id: "attach-value", labels: measured(setting.observations), words: setting.observed, read: measurementReader(view.status.units) });
    const submit = (event) => {
      event.preventDefault();
      const where = query.read();
      const observation = where && values.read();
      if (observation) change("attach", { query: where, observation, confirm: confirmed(values) }, { form: values, focus: null });
    };
    /** All rows of a table or none; where some are not plausible, the same file opened again is taken. */
    let doubted = "";
    const table = h("p", { class: "error", id: "table-error", role: "alert" });
    const takeTable = (csv, file) => {
      const told = { inputs: [], refuse: (text) => (table.textContent = text.replace("press the button once more", "open the file once more")) };
      const confirm = doubted === csv;
      doubted = csv;
      table.textContent = "";
      change("table", { csv, confirm }, { form: told, focus: null, said: () => `The measurements of ${file} are recorded.` });
    };
    const columns = [...setting.query.map((_, i) => settingName(view.status.units, i)), ...(view.status.units?.readout ? [view.status.units.readout.name] : setting.observations === 1 ? ["y"] : measured(setting.observations))];
    return h(
      "details", { class: "more no-print" }, h("summary", null, "Add measurements made elsewhere"),
      h("form", { onsubmit: submit }, h("p", { class: "quiet" }, "It counts as data. The guarantee is about queries that the agent chose, so the report says how many were not."), query.element, values.element, h("button", { type: "submit" }, "Add it")),
      h("div", { class: "table-in" }, h("p", { class: "quiet" }, `Many at once: a table whose first row names the columns ${columns.join(", ")}. All rows are taken, or none.`), openFile("Open a table (CSV)", ".csv,text/csv,text/plain", takeTable), table),
    );
  }

  function logCard() {
    return h(
      "details", { class: "card log", open: place.querySelector(".log")?.open ?? false },
      h("summary", null, h("h2", null, "Log"), h("span", { class: "quiet" }, ` ${plural(log.events.length, "entry").replace("entrys", "entries")}, nothing is ever removed`)),
      h("ol", { start: 0 }, log.events.map((entry) => h("li", { class: entry.in_force || entry.event.kind === "undone" ? "" : "gone", value: entry.position }, h("time", { datetime: entry.at }, `${when(entry.at)} `), entry.words, entry.in_force || entry.event.kind === "undone" ? "" : " (undone)"))),
    );
  }

  /** The model knows numbers alone: in which range queries are, and that what was measured stands as it was typed. */
  function units() {
    const ranges = view.setting.query.map(({ low, high }) => `${figure(low, 4)} to ${figure(high, 4)}`);
    const alike = new Set(ranges).size === 1;
    const queries = alike ? `${ranges.length > 1 ? "each coordinate of " : ""}a query is from ${ranges[0]}` : ranges.map((range, i) => `x${i + 1} is from ${range}`).join(", ");
    const { settings = [], readout } = view.status.units ?? {};
    if (settings.length) return [...settings.map((_, i) => `${settingLabel(view.status.units, i)} from ${ranges[i]}`), readout ? measurementLabels(view.status.units, 1)[0] : ""].filter(Boolean).join("; ");
    return `${queries}; measurements are as they were typed`;
  }

  function particulars() {
    const { campaign, setting } = view;
    const rows = [
      ["Campaign", `${campaign.name} (${campaign.id})`], ["Begun", `${when(campaign.created)} UTC`], ["Model", campaign.model], ["Model fingerprint", campaign.model_sha256],
      ["Epsilon, delta", `${figure(campaign.epsilon)}, ${figure(campaign.delta)}`], ...Object.entries(campaign.context).map(([key, value]) => [key[0].toUpperCase() + key.slice(1), figure(value)]), ["Units", units()], ["Stop rule", campaign.stop], ["Seed", String(campaign.seed)], ["At most", plural(setting.horizon, "querie").replace("1 querie", "1 query")], ["Log entries", String(view.status.version)],
    ];
    const copy = h("input", { id: "fork-name", type: "text", autocomplete: "off" });
    const error = h("p", { class: "error", role: "alert" });
    const fork = async (event) => {
      event.preventDefault();
      try {
        location.hash = `#/c/${encodeURIComponent((await api.fork(name, copy.value.trim())).campaign.name)}`;
      } catch (problem) {
        error.textContent = problem instanceof Refusal ? sentence(problem) : problem.message;
      }
    };
    return h(
      "details", { class: "card particulars", open: place.querySelector(".particulars")?.open ?? false }, h("summary", null, h("h2", null, "Particulars")),
      h("dl", null, rows.map(([term, text]) => h("div", null, h("dt", null, term), h("dd", null, text)))),
      h("form", { class: "no-print", onsubmit: fork }, h("div", { class: "field" }, h("label", { for: "fork-name" }, "Copy this campaign under another name"), copy), error, h("div", { class: "row" }, h("button", { type: "submit" }, "Copy"), h("button", { type: "button", onclick: () => restart(copy.value.trim() || nextName(campaign.name), error) }, "Begin it anew"), h("button", { type: "button", onclick: save }, "Export"), h("button", { type: "button", onclick: saveTable }, "Table (CSV)"), h("button", { type: "button", onclick: () => window.print() }, "Print a report"))),
    );
  }

  function unfold() {
    for (const fold of place.querySelectorAll("details.card")) fold.open = true;
  }

  refresh();
  return () => {
    ended = true;
    clearInterval(timer);
    resize.disconnect();
    window.removeEventListener("beforeprint", unfold);
  };
}
