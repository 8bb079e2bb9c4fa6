// Plots as SVG: confidence over time, and the query space in one, two or more coordinates.

import { figure, point, rounded, s } from "./dom.js";
import { observationWords, queryWords, readingLabel, settingLabel, settingName } from "./units.js";

export const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
export const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);
export const logScale = (low, high, from, to) => (value) => from + (Math.log(Math.max(value, low / 1e6) / low) / Math.log(high / low)) * (to - from);
/** The scale of a setting: by factors where its own is. */
export const along = (units, k, { low, high }, from, to) => (units?.settings?.[k]?.log ? logScale : scale)(low, high, from, to);
export const title = (text) => s("title", null, text);

/** A few round numbers between two. */
export function ticks(low, high, wanted = 4) {
  const rough = (high - low) / wanted || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => size >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found;
}

/** Round numbers on the scale of a setting. */
export function settingTicks(units, k, { low, high }, wanted) {
  if (!units?.settings?.[k]?.log) return ticks(low, high, wanted);
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
  const inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  return inside.length > 2 * wanted ? inside.filter((value) => Number.isInteger(Math.log10(value))) : inside;
}

export function frame(width, height, label, ...content) {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "plot" }, content);
}

function axes({ left, right, top, bottom, x, y, xs, ys, names = [] }) {
  return s(
    "g", { class: "axes" },
    ys.map((value) => [
      s("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "grid" }),
      s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, figure(value, 3)),
    ]),
    xs.map((value) => s("text", { x: x(value), y: bottom + 18, "text-anchor": "middle" }, figure(value, 3))),
    s("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "rule" }),
    names[0] ? s("text", { x: right, y: bottom + 32, "text-anchor": "end", class: "strong" }, names[0]) : null,
    names[1] ? s("text", { x: left - 38, y: top - 8, class: "strong" }, names[1]) : null,
  );
}

/** Confidence after every step against the confidence at which it stops. */
export function confidencePlot(width, { campaign, setting, status }, trace) {
  const height = 244, left = 40, right = width - 12, top = 30, bottom = height - 40;
  const made = trace.length - 1;
  const last = Math.min(setting.horizon, Math.max(made + Math.ceil(status.expected_remaining_queries ?? 0), 4));
  const x = scale(0, last, left, right), y = scale(0, 1, bottom, top);
  const places = trace.map((then, i) => [x(i), y(then.confidence)]);
  const path = places.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
  const wanted = figure(1 - status.delta, 3), target = status.stops_at ?? 1 - status.delta;
  const together = campaign.stop === "each" ? "" : " of all campaigns together";
  const asked = status.stops_at === null || figure(target, 2) === wanted ? `asked for: ${wanted}` : `stops at ${figure(target, 3)} (asked for: ${wanted}${together})`;
  const now = trace[made].confidence;
  return frame(
    width, height, `Confidence after ${made} steps: ${figure(now, 3)}; ${asked}.`,
    axes({ left, right, top, bottom, x, y, xs: ticks(0, last, Math.min(last, 6)).filter(Number.isInteger), ys: [0, 0.5, 1], names: ["measurements", "confidence"] }),
    s("path", { d: `${path}L${x(made)} ${bottom}L${x(0)} ${bottom}Z`, class: "area" }),
    s("line", { x1: left, x2: right, y1: y(target), y2: y(target), class: "target" }),
    s("text", { x: left + 6, y: y(target) - 7, class: "strong" }, asked),
    s("path", { d: path, class: "line" }),
    places.map(([a, b], i) => s("circle", { cx: a, cy: b, r: i === made ? 5 : 2.5, class: i === made ? "now" : "then" }, title(`after ${i} steps: ${figure(trace[i].confidence, 3)}`))),
  );
}

const told = (step, i, units) => `step ${i + 1}: ${observationWords(units, step.observation)} at ${queryWords(units, step.query)}${step.source === "attached" ? ", measured elsewhere" : ""}${step.first_observation ? `, corrected from ${point(step.first_observation)}` : ""}`;
const kind = (step) => `${step.source === "attached" ? "attached" : ""} ${step.first_observation ? "corrected" : ""}`;

/** The query space: a curve, a map, or a strip for each coordinate. */
export function spacePlot(width, view, plot) {
  const coordinates = view.setting.query.length;
  if (coordinates === 1 && view.setting.observations === 1) return curve(width, view, plot);
  if (coordinates === 2) return map(width, view, plot);
  return strips(width, view, plot);
}

/** One coordinate: what was measured where, and the answer with its interval. */
function curve(width, { setting, status }, { skips }) {
  const height = 420, left = 48, right = width - 14, top = 34, bottom = height - 44;
  const [{ low, high }] = setting.query;
  const [interval] = status.credible_region, [answer] = status.recommendation;
  const among = setting.answer_lies === "observation";
  const seen = status.history.map((step) => step.observation[0]).concat(among ? [...interval, answer] : []);
  const [least, most] = seen.length ? [Math.min(...seen), Math.max(...seen)] : [-1, 1];
  const margin = (most - least) * 0.12 || 1;
  const x = along(status.units, 0, { low, high }, left, right), y = scale(least - margin, most + margin, bottom, top);
  const sorted = status.history.map((step) => [x(step.query[0]), y(step.observation[0])]).sort((a, b) => a[0] - b[0]);
  const here = among
    ? [
        s("rect", { x: left, width: right - left, y: y(interval[1]), height: Math.max(y(interval[0]) - y(interval[1]), 1), class: "region" }),
        s("line", { x1: left, x2: right, y1: y(answer), y2: y(answer), class: "answer-line" }),
        s("text", { x: right - 6, y: y(answer) - 7, "text-anchor": "end", class: "strong" }, `answer ${rounded(answer, status.decimals[0])}`),
      ]
    : setting.answer_lies === "query"
      ? [
          s("rect", { x: x(interval[0]), width: Math.max(x(interval[1]) - x(interval[0]), 1), y: top, height: bottom - top, class: "region" }),
          s("line", { x1: x(answer), x2: x(answer), y1: top, y2: bottom, class: "answer-line" }),
        ]
      : null;
  const next = status.query && x(status.query[0]);
  return frame(
    width, height, `The query space, with ${status.history.length} measurements${status.query ? `; the next at ${point(status.query)}` : ""}.`,
    here,
    axes({ left, right, top, bottom, x, y, xs: settingTicks(status.units, 0, { low, high }, 5), ys: ticks(least - margin, most + margin, 4), names: [settingLabel(status.units, 0), readingLabel(status.units)] }),
    s("path", { d: sorted.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join(""), class: "line thin" }),
    skips.map((skip) => cross(x(skip.query[0]), bottom, `skipped${skip.reason ? `: ${skip.reason}` : ""}`)),
    status.query ? [s("line", { x1: next, x2: next, y1: top, y2: bottom, class: "next-line" }), s("text", { x: clamp(next, left + 14, right - 14), y: top - 9, "text-anchor": "middle", class: "strong" }, "next")] : null,
    status.history.map((step, i) => s("circle", { cx: x(step.query[0]), cy: y(step.observation[0]), r: 5, class: `seen ${kind(step)}` }, title(told(step, i, status.units)))),
  );
}

/** Two coordinates: where it was measured, and where the answer lies. */
function map(width, { setting, status }, { skips }) {
  const side = Math.min(width, 460), height = side, left = 44, right = side - 12, top = 26, bottom = height - 44;
  const [across, up] = setting.query;
  const inset = 15; // room in the frame for what is drawn about a point at the edge
  const x = along(status.units, 0, across, left + inset, right - inset), y = along(status.units, 1, up, bottom - inset, top + inset);
  const single = setting.observations === 1;
  const values = status.history.map((step) => step.observation[0]);
  const strength = scale(Math.min(...values), Math.max(...values), 25, 100);
  const belief = () => {
    const [[low1, high1], [low2, high2]] = status.credible_region, [a, b] = status.recommendation;
    return [
      s("rect", { x: x(low1), y: y(high2), width: Math.max(x(high1) - x(low1), 1), height: Math.max(y(low2) - y(high2), 1), rx: 3, class: "region" }, title("credible region")),
      s("path", { d: `M${x(a) - 9} ${y(b)}h18M${x(a)} ${y(b) - 9}v18`, class: "answer-line" }, title(`answer: ${status.recommendation.map((value, i) => rounded(value, status.decimals[i])).join(", ")}`)),
    ];
  };
  const dots = status.history.map((step, i) => {
    const [a, b] = [x(step.query[0]), y(step.query[1])];
    const dot = s("circle", { cx: a, cy: b, r: 9, class: `seen ${kind(step)}` }, title(told(step, i, status.units)));
    if (single && step.source !== "attached") dot.style.fill = `color-mix(in oklab, var(--accent) ${strength(step.observation[0]).toFixed(0)}%, var(--card))`;
    return s("g", null, dot, s("text", { x: a, y: b + 3.5, "text-anchor": "middle", class: `number ${single && step.source !== "attached" && strength(step.observation[0]) < 60 ? "dark" : ""}` }, String(i + 1)));
  });
  const svg = frame(
    side, height, `The query space, with ${status.history.length} measurements${status.query ? `; the next at ${point(status.query)}` : ""}.`,
    axes({ left, right, top, bottom, x, y, xs: settingTicks(status.units, 0, across, 4), ys: settingTicks(status.units, 1, up, 4), names: [settingLabel(status.units, 0), settingLabel(status.units, 1)] }),
    s("rect", { x: left, y: top, width: right - left, height: bottom - top, class: "border" }),
    setting.answer_lies === "query" ? belief() : null,
    skips.map((skip) => cross(x(skip.query[0]), y(skip.query[1]), `skipped${skip.reason ? `: ${skip.reason}` : ""}`)),
    dots,
    status.query ? s("circle", { cx: x(status.query[0]), cy: y(status.query[1]), r: 12, class: "next-ring" }, title(`next: ${point(status.query)}`)) : null,
  );
  svg.classList.add("square");
  return svg;
}

/** Three coordinates or more (or several numbers a query): one strip each. */
function strips(width, { setting, status }, { skips }) {
  const row = 42, left = 62, right = width - 30, height = setting.query.length * row + 8;
  const among = setting.answer_lies === "query";
  return frame(
    width, height, `Each coordinate of the query space, with ${status.history.length} measurements.`,
    setting.query.map(({ low, high }, k) => {
      const middle = k * row + row / 2 + 2, x = along(status.units, k, { low, high }, left, right);
      const place = (value) => x(clamp(value, low, high));
      return s(
        "g", null,
        s("text", { x: 0, y: middle + 4, class: "strong" }, settingName(status.units, k)),
        s("line", { x1: left, x2: right, y1: middle, y2: middle, class: "rule" }),
        among ? s("rect", { x: place(status.credible_region[k][0]), width: Math.max(place(status.credible_region[k][1]) - place(status.credible_region[k][0]), 2), y: middle - 8, height: 16, rx: 4, class: "region" }, title(`credible interval: ${status.credible_region[k].map((end) => rounded(end, status.decimals[k])).join(" to ")}`)) : null,
        status.history.map((step, i) => {
          const tick = s("line", { x1: place(step.query[k]), x2: place(step.query[k]), y1: middle - 6, y2: middle + 6, class: `tick ${kind(step)}` }, title(told(step, i, status.units)));
          tick.style.opacity = (0.2 + (0.6 * (i + 1)) / status.history.length).toFixed(2);
          return tick;
        }),
        among ? s("circle", { cx: place(status.recommendation[k]), cy: middle, r: 5.5, class: "now" }, title(`answer: ${rounded(status.recommendation[k], status.decimals[k])}`)) : null,
        skips.map((skip) => cross(place(skip.query[k]), middle, "skipped")),
        status.query ? s("path", { d: `M${place(status.query[k])} ${middle - 9}l-5 -7h10z`, class: "next-mark" }, title(`next: ${figure(status.query[k])}`)) : null,
        s("text", { x: width, y: middle + 4, "text-anchor": "end" }, figure(high, 3)),
        s("text", { x: left - 8, y: middle + 4, "text-anchor": "end" }, figure(low, 3)),
      );
    }),
  );
}

function cross(a, b, text) {
  return s("path", { d: `M${a - 5} ${b - 5}l10 10m0 -10l-10 10`, class: "skipped" }, title(text));
}

/** The answer's interval on a line from one limit to the other. */
export function intervalBar({ low, high }, [from, to], middle) {
  const x = scale(low, high, 2, 198), place = (value) => x(clamp(value, low, high));
  return s(
    "svg", { viewBox: "0 0 200 14", preserveAspectRatio: "none", class: "bar", "aria-hidden": "true" },
    s("line", { x1: 2, x2: 198, y1: 7, y2: 7, class: "rule" }),
    s("rect", { x: place(from), width: Math.max(place(to) - place(from), 1.5), y: 2.5, height: 9, rx: 2, class: "region" }),
    s("rect", { x: place(middle) - 1, width: 2, y: 0.5, height: 13, class: "middle" }),
  );
}
