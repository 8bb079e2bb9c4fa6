// What coordinates mean to whoever measures: names, units, yes and no. Without units, the coordinates themselves.

import { figure, point, rounded, typedNumber, typedValue } from "./dom.js";

const withUnit = (text, unit) => (unit ? `${text} ${unit}` : text);

/** A setting's name, with its unit where there is room for it. */
export const settingName = (units, i) => units?.settings?.[i]?.name ?? `x${i + 1}`;
export const settingLabel = (units, i) => {
  const one = units?.settings?.[i];
  return one ? (one.unit ? `${one.name} (${one.unit})` : one.name) : `x${i + 1}`;
};
/** What is measured, as an axis says it. */
export const readingLabel = (units) => {
  const one = units?.readout;
  return one ? (one.unit ? `${one.name} (${one.unit})` : one.name) : "measured";
};
export const answerName = (units, i) => units?.answers?.[i]?.name ?? `x${i + 1}`;

/** Digits of a query, wherever it is named. */
const DIGITS = 6;
/** One value of a setting or of an answer, as people write it. */
export const settingValue = (units, i, value, digits = DIGITS) => withUnit(figure(value, digits), units?.settings?.[i]?.unit);
export const answerValue = (status, i, value) => withUnit(rounded(value, status.decimals[i]), status.units?.answers?.[i]?.unit);
export const answerInterval = (status, i) => `${rounded(status.credible_region[i][0], status.decimals[i])} to ${answerValue(status, i, status.credible_region[i][1])}`;

/** A whole query: "temperature 845 °C, time 95 min". */
export const queryWords = (units, query) =>
  units?.settings?.length ? query.map((value, i) => `${settingName(units, i)} ${settingValue(units, i, value)}`).join(", ") : point(query, DIGITS);
export const answerWords = (status) =>
  status.recommendation.map((value, i) => (status.units?.answers?.length ? `${answerName(status.units, i)} ` : "") + answerValue(status, i, value)).join(", ");

/** Reads what a person typed for a measurement: a number, or words that the server knows; null where there is nothing. */
export function measurementReader(units) {
  if (!units?.readout) return typedValue;
  return (text) => (Number.isFinite(typedNumber(text)) ? typedNumber(text) : text.trim() || null);
}

/** What was measured. */
export function observationWords(units, observation) {
  if (observation.some((value) => typeof value === "string")) return observation.join(", ");
  const readout = units?.readout;
  if (!readout) return point(observation);
  if (readout.kind === "yes/no") return observation[0] ? "yes" : "no";
  if (readout.kind === "count") return readout.of ? `${figure(observation[0])}/${readout.of}` : figure(observation[0]);
  return withUnit(figure(observation[0], 6), readout.unit);
}

/** The labels of the fields into which a measurement is typed. */
export function measurementLabels(units, count) {
  const readout = units?.readout;
  if (!readout) return count === 1 ? ["Measurement"] : Array.from({ length: count }, (_, i) => `y${i + 1}`);
  const how = readout.kind === "yes/no" ? "yes or no" : readout.kind === "count" ? (readout.of ? `of ${readout.of}` : "a count") : readout.unit;
  return [how ? `${readout.name} (${how})` : readout.name];
}

/** How far off an answer may be, in words. */
export function toleranceWords(units, epsilon) {
  if (!units?.answers?.length) return figure(epsilon);
  const each = units.answers.map(({ low, high, log, extent, unit }) =>
    log ? `${figure(100 * Math.expm1(Math.abs((epsilon * Math.log(high / low)) / extent)), 3)} %` : withUnit(figure(Math.abs((epsilon * (high - low)) / extent), 3), unit),
  );
  return each.length === 1 ? each[0] : each.map((off, i) => `${off} in ${units.answers[i].name}`).join(" and ");
}
