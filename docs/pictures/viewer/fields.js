// What a field's configuration makes of a value: settings with overrides, mapped texts, colours.

import {format} from "./units.js";

const NAMED = {
  green: "#73BF69", yellow: "#FADE2A", red: "#F2495C", blue: "#5794F2", orange: "#FF9830",
};
const PALETTE = [
  "#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C", "#5794F2", "#B877D9", "#705DA0",
  "#37872D", "#FADE2A", "#447EBC", "#C15C17", "#C4162A", "#0A437C", "#E5A8E2", "#AEA2E0",
  "#96D98D", "#FFEE52", "#C0D8FF", "#FFB357", "#FF9830", "#56A64B", "#A352CC", "#3274D9",
];
const SCALE = [[115, 191, 105], [250, 222, 42], [242, 73, 92]];

export const colour = (name) => NAMED[name] ?? name;

// The settings of one field: the panel's defaults with what the overrides that match say.
export function settings(panel, {name, refId, type}) {
  const {defaults, overrides = []} = panel.fieldConfig;
  const own = {...defaults, custom: {...defaults.custom}};
  for (const {matcher, properties} of overrides) {
    const wanted = matcher.id === "byFrameRefID" ? refId : matcher.id === "byType" ? type : name;
    if (matcher.options !== wanted) continue;
    for (const {id, value} of properties) {
      if (id.startsWith("custom.")) own.custom[id.slice(7)] = value;
      else own[id] = value;
    }
  }
  return own;
}

function mapped(value, {mappings = []}) {
  for (const {options} of mappings) {
    if (options[String(value)]) return options[String(value)];
  }
  return null;
}

export function text(value, own) {
  if (typeof value === "string") return mapped(value, own)?.text ?? value;
  return mapped(value, own)?.text ?? format(value, own.unit, own.decimals);
}

export function valueColour(value, own) {
  const found = mapped(value, own);
  if (found?.color) return colour(found.color);
  if (own.color?.mode?.startsWith("continuous")) return onScale(value, own);
  let chosen = "green";
  for (const step of own.thresholds?.steps ?? []) {
    if (step.value === null || step.value === undefined || value >= step.value) chosen = step.color;
  }
  return colour(chosen);
}

function onScale(value, {min = 0, max = 1}) {
  const place = Math.min(1, Math.max(0, (value - min) / (max - min))) * (SCALE.length - 1);
  const below = Math.min(Math.floor(place), SCALE.length - 2);
  const mix = SCALE[below].map((from, index) =>
    Math.round(from + (SCALE[below + 1][index] - from) * (place - below)));
  return `rgb(${mix.join(",")})`;
}

// Names of neighbours get colours of their own: a series keeps its colour in every panel.
export function seriesColour(name, own, taken) {
  if (own.color?.mode === "fixed") return colour(own.color.fixedColor);
  let index = [...name].reduce((hash, letter) => (hash * 31 + letter.charCodeAt(0)) >>> 0, 7);
  for (let tries = 0; tries < PALETTE.length; tries += 1, index += 1) {
    if (!taken.has(index % PALETTE.length)) break;
  }
  taken.add(index % PALETTE.length);
  return PALETTE[index % PALETTE.length];
}
