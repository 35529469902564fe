// Lines over time, with areas, bands, stacks, annotations and a legend.

import {timeAxis} from "./axes.js";
import {element, shape} from "./dom.js";
import {seriesColour, settings} from "./fields.js";
import {format} from "./units.js";

const TIME_TICKS = [2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];
const NARROW = 200;
const MARGIN = {left: 66, right: 12, top: 6, bottom: 22};

export function timeseries(panel, frames, context) {
  const taken = new Set();
  const series = frames.map((frame) => {
    const own = settings(panel, frame);
    return {...frame, own, colour: seriesColour(frame.name, own, taken)};
  });
  const stacked = panel.fieldConfig.defaults.custom?.stacking?.mode === "normal";
  if (stacked) stack(series);
  const {displayMode, placement} = panel.options.legend;
  const beside = displayMode === "table" && placement === "right";
  const holder = element("div", {
    style: `display:flex;flex:1;min-width:0;flex-direction:${beside ? "row" : "column"}`,
  });
  const width = context.width * (beside ? 0.64 : 1);
  const height = context.height - (beside ? 0 : 22);
  holder.append(
    drawing(panel, series, {...context, width, height, stacked}),
    beside ? tableLegend(series, panel, context.width - width) : listLegend(series),
  );
  return holder;
}

function stack(series) {
  const sums = new Map();
  for (const line of series) {
    line.base = line.points.map(([time]) => [time, sums.get(time) ?? 0]);
    line.points = line.points.map(([time, value]) => {
      const top = (sums.get(time) ?? 0) + (Number.isFinite(value) ? value : 0);
      sums.set(time, top);
      return [time, top, value];
    });
  }
}

function limits(series, {min, max}) {
  const values = series.flatMap(({points}) => points.map(([, value]) => value)).filter(Number.isFinite);
  let [low, high] = [min ?? Math.min(...values), max ?? Math.max(...values)];
  if (!(high > low)) high = low + (Math.abs(low) || 1);
  if (max === undefined) high += (high - low) * 0.06;
  if (min === undefined) low -= (high - low) * 0.06;
  return [low, high];
}

function drawing(panel, series, context) {
  const {from, to, width, height} = context;
  const {defaults} = panel.fieldConfig;
  const svg = shape("svg", {width, height, viewBox: `0 0 ${width} ${height}`});
  const bottom = height - MARGIN.bottom;
  const [low, high] = limits(series, defaults);
  const x = (time) => MARGIN.left + (time - from) / (to - from) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => bottom - (value - low) / (high - low) * (bottom - MARGIN.top);
  timeAxis(svg, {from, to, x, bottom, top: MARGIN.top, width});
  valueAxis(svg, {low, high, y, width, unit: defaults.unit});
  const clip = `clip-${panel.id}`;
  svg.append(shape("clipPath", {id: clip}, shape("rect", {
    x: MARGIN.left, y: 0, width: width - MARGIN.left - MARGIN.right, height: bottom + 1,
  })));
  const inside = shape("g", {"clip-path": `url(#${clip})`});
  for (const line of [...series].reverse()) inside.append(...strokes(line, {x, y, low, series, ...context}));
  svg.append(inside);
  annotate(svg, {...context, x, bottom});
  return svg;
}

function valueAxis(svg, {low, high, y, width, unit}) {
  const step = tickSize((high - low) / 4, unit);
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
    const exact = Math.abs(value) < step / 1e6 ? 0 : value;
    svg.append(
      shape("line", {x1: MARGIN.left, x2: width - MARGIN.right, y1: y(exact), y2: y(exact), class: "grid"}),
      shape("text", {x: MARGIN.left - 6, y: y(exact) + 4, "text-anchor": "end"}, format(exact, unit)),
    );
  }
}

// The next round number, as the unit counts: minutes and KiB are no powers of ten.
function tickSize(rough, unit) {
  if (unit === "s" && rough > 1) return TIME_TICKS.find((size) => size >= rough) ?? rough;
  const base = unit === "bytes" || unit === "binBps" ? 1024 : 10;
  const power = base ** Math.floor(Math.log(rough) / Math.log(base));
  return [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024]
    .map((factor) => factor * power).find((size) => size >= rough);
}

// A gap in time ends a line: what vanished must not look as if it went on.
function pieces(points, gap) {
  const found = [[]];
  let last = null;
  for (const point of points) {
    if (!Number.isFinite(point[1])) continue;
    if (last !== null && point[0] - last > gap) found.push([]);
    found.at(-1).push(point);
    last = point[0];
  }
  return found.filter((piece) => piece.length);
}

function strokes(line, {x, y, low, series, step, stacked}) {
  const {custom} = line.own;
  const path = (points) => points.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`);
  const drawn = [];
  const floor = bounds(line, series, stacked);
  for (const piece of pieces(line.points, step * 2.5)) {
    const top = path(piece);
    if (custom.fillOpacity) {
      const below = path(piece.map(([time]) => [time, floor?.get(time) ?? Math.max(low, 0)]).reverse());
      drawn.push(shape("polygon", {
        points: [...top, ...below].join(" "), fill: line.colour, "fill-opacity": custom.fillOpacity / 100,
      }));
    }
    if (custom.lineWidth) {
      drawn.push(shape("polyline", {
        points: top.join(" "), fill: "none", stroke: line.colour, "stroke-width": custom.lineWidth * 1.2,
        "stroke-dasharray": (custom.lineStyle?.dash ?? []).join(" "), "stroke-linecap": "round",
      }));
    }
    if (piece.length === 1) {
      drawn.push(shape("circle", {cx: x(piece[0][0]), cy: y(piece[0][1]), r: 2, fill: line.colour}));
    }
  }
  return drawn;
}

// The lower edge of an area: what it is stacked on, or the series it is a band to.
function bounds(line, series, stacked) {
  if (stacked) return new Map(line.base);
  const other = series.find(({name}) => name === line.own.custom.fillBelowTo);
  return other ? new Map(other.points) : null;
}

function annotate(svg, {annotations, from, to, x, bottom}) {
  for (const {start, end, colour} of annotations) {
    if (end < from || start > to) continue;
    const left = x(Math.max(from, start));
    if (end > start) {
      svg.append(shape("rect", {
        x: left, y: bottom, width: Math.max(1, x(Math.min(to, end)) - left), height: 3, fill: colour,
      }));
    }
    svg.append(shape("line", {
      x1: left, x2: left, y1: MARGIN.top, y2: bottom, stroke: colour, "stroke-dasharray": "3 3",
    }), shape("path", {d: `M${left - 4},${bottom + 6} l4,-6 l4,6 z`, fill: colour}));
  }
}

function last(line) {
  const point = line.points.filter(([, value]) => Number.isFinite(value)).at(-1);
  return point ? point[2] ?? point[1] : NaN;
}

function highest(line) {
  return Math.max(...line.points.map((point) => point[2] ?? point[1]).filter(Number.isFinite));
}

function swatch(line) {
  return element("span", {class: "swatch", style: `background:${line.colour}`});
}

function tableLegend(series, panel, width) {
  const {unit, decimals} = panel.fieldConfig.defaults;
  const columns = width < NARROW ? [["Last", last]] : [["Last", last], ["Max", highest]];
  const heads = columns.map(([name]) => element("th", {}, name));
  const table = element("table", {}, element("tr", {}, element("th"), ...heads));
  for (const line of [...series].sort((a, b) => last(b) - last(a))) {
    table.append(element("tr", {},
      element("td", {}, swatch(line), line.name),
      ...columns.map(([, of]) => element("td", {}, format(of(line), unit, decimals)))));
  }
  return element("div", {class: "legend table"}, table);
}

function listLegend(series) {
  return element("div", {class: "legend list"}, ...series.map((line) =>
    element("span", {class: "item"}, swatch(line), line.name)));
}
