// Eight experiments that might happen, side by side: curves with readings on them, or maps.

import { figure, h, s } from "./dom.js";
import { along, frame, scale, settingTicks, ticks, title } from "./plots.js";
import { readingLabel, settingLabel } from "./units.js";

const SHADES = 14; // of a map
const GAP = 14, LEFT = 46, TOP = 24, BOTTOM = 40;

const known = (values) => values.filter((value) => value !== null);

/** What is on the axis of the readings. */
function meanLabel(units) {
  const { readout } = units;
  if (readout.kind === "yes/no") return `probability of ${readout.name}`;
  return readout.of ? `${readout.name}, as a share of ${readout.of}` : readingLabel(units);
}

/** The picture, as wide as it may be. */
export function predictivePicture(width, { units, picture }) {
  const columns = width > 640 ? 4 : 2, rows = Math.ceil(picture.draws.length / columns);
  const across = (width - LEFT - 6 - GAP * (columns - 1)) / columns;
  const flat = picture.grid.length === 1;
  const high = flat ? Math.max(84, Math.min(across * 0.62, 130)) : Math.min(across, 150);
  const height = TOP + rows * high + (rows - 1) * GAP + BOTTOM;
  const places = picture.draws.map((_, i) => ({ left: LEFT + (i % columns) * (across + GAP), top: TOP + Math.floor(i / columns) * (high + GAP), column: i % columns, row: Math.floor(i / columns) }));
  const draw = flat ? curves(units, picture) : maps(units, picture);
  const svg = frame(
    width, height, `Eight experiments of this kind: ${meanLabel(units)} over ${settingLabel(units, 0)}${flat ? "" : ` and ${settingLabel(units, 1)}`}.`,
    picture.draws.map((one, i) => draw(one, { ...places[i], right: places[i].left + across, bottom: places[i].top + high, last: places[i].row === rows - 1 || i + columns >= picture.draws.length })),
    s("text", { x: 0, y: 14, class: "strong" }, flat ? meanLabel(units) : settingLabel(units, 1)),
    s("text", { x: width - 6, y: height - 6, "text-anchor": "end", class: "strong" }, settingLabel(units, 0)),
  );
  return h("div", null, svg, legend(units, picture, flat));
}

/** A panel's frame with the numbers at its left and at its foot, where they are not in the next panel's way. */
function panel({ left, right, top, bottom, column, last }, x, y, xs, ys) {
  return [
    ys.map((value) => [s("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "grid" }), column ? null : s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, figure(value, 3))]),
    last ? xs.map((value) => s("text", { x: x(value), y: bottom + 15, "text-anchor": x(value) < left + 8 ? "start" : x(value) > right - 8 ? "end" : "middle" }, figure(value, 3))) : null,
    s("rect", { x: left, y: top, width: right - left, height: bottom - top, class: "border" }),
  ];
}

/** Few enough numbers that they do not run into each other. */
function thinned(values, x, room = 38) {
  const kept = [];
  for (const value of values) if (!kept.length || Math.abs(x(value) - x(kept.at(-1))) >= room) kept.push(value);
  return kept;
}

function curves(units, picture) {
  const [places] = picture.grid;
  const limits = { low: places[0], high: places.at(-1) };
  const all = known(picture.draws.flatMap((one) => one.truth[0]));
  const probability = units.readout.kind === "yes/no" || units.readout.of;
  const [least, most] = probability ? [0, 1] : [Math.min(...all), Math.max(...all)];
  const margin = (most - least) * 0.1 || 1;
  return (one, box) => {
    const x = along(units, 0, limits, box.left, box.right), y = scale(least - margin, most + margin, box.bottom, box.top);
    const inside = (value) => value !== null && value >= least - margin && value <= most + margin;
    const path = one.truth[0].map((value, i) => (value === null ? "" : `${i && one.truth[0][i - 1] !== null ? "L" : "M"}${x(places[i]).toFixed(1)} ${y(value).toFixed(1)}`)).join("");
    const answer = picture.answer_is_place && one.answer[0] !== null ? x(one.answer[0]) : null;
    return s(
      "g", { class: "panel" },
      panel(box, x, y, thinned(settingTicks(units, 0, limits, 3), x), ticks(least, most, 2)),
      answer === null ? null : s("line", { x1: answer, x2: answer, y1: box.top, y2: box.bottom, class: "next-line" }),
      s("path", { d: path, class: "line" }),
      one.readings.map((value, i) => (inside(value) ? s("circle", { cx: x(one.read_at[i][0]).toFixed(1), cy: y(value).toFixed(1), r: 2.2, class: "reading" }) : null)),
    );
  };
}

function maps(units, picture) {
  const [across, up] = picture.grid;
  const all = known(picture.draws.flatMap((one) => one.truth.flat()));
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const shade = (value) => (value === null ? -1 : Math.round(((value - least) / (most - least || 1)) * (SHADES - 1)));
  const limits = [across, up].map((line) => ({ low: line[0], high: line.at(-1) }));
  return (one, box) => {
    const x = along(units, 0, limits[0], box.left, box.right), y = along(units, 1, limits[1], box.bottom, box.top);
    const wide = (box.right - box.left) / across.length, tall = (box.bottom - box.top) / up.length;
    const cells = one.truth.flatMap((row, k) => runs(row.map(shade)).map(([from, to, level]) => {
      if (level < 0) return null;
      const cell = s("rect", { x: (box.left + from * wide).toFixed(2), y: (box.bottom - (k + 1) * tall).toFixed(2), width: ((to - from) * wide + 0.4).toFixed(2), height: (tall + 0.4).toFixed(2) });
      cell.style.fill = `color-mix(in oklab, var(--accent) ${Math.round(6 + (94 * level) / (SHADES - 1))}%, var(--card))`;
      return cell;
    }));
    const [a, b] = one.answer;
    return s(
      "g", { class: "panel" }, cells,
      panel(box, x, y, thinned(settingTicks(units, 0, limits[0], 3), x), settingTicks(units, 1, limits[1], 2)),
      picture.answer_is_place && one.answer.length > 1 ? s("path", { d: `M${x(a) - 6} ${y(b)}h12M${x(a)} ${y(b) - 6}v12`, class: "sought" }, title(`answer: ${figure(a, 4)}, ${figure(b, 4)}`)) : null,
    );
  };
}

/** Neighbours with the same shade, as one. */
function runs(levels) {
  const found = [];
  levels.forEach((level, i) => (found.length && found.at(-1)[2] === level ? (found.at(-1)[1] = i + 1) : found.push([i, i + 1, level])));
  return found;
}

function legend(units, picture, flat) {
  const items = flat ? [["swatch answer", "the truth"], ["swatch reading", "readings"]] : [["swatch shades", `${meanLabel(units)}: low to high`]];
  if (picture.answer_is_place) items.push([flat ? "swatch sought-line" : "swatch sought-cross", "what is sought"]);
  const middle = units.settings.slice(2).map((one) => one.name);
  return h("div", null, h("ul", { class: "legend" }, items.map(([type, text]) => h("li", null, h("span", { class: type, "aria-hidden": "true" }), text))), middle.length ? h("p", { class: "quiet small" }, `${middle.join(" and ")} at the middle of the range.`) : null);
}
