// Rows of coloured cells over time: heat maps (status history) and state timelines.

import {timeAxis} from "./axes.js";
import {shape} from "./dom.js";
import {settings, valueColour} from "./fields.js";

const TOP = 4, BOTTOM = 22, RIGHT = 12, LETTER = 6.6;

export function cells(panel, frames, {from, to, step, width, height}) {
  const svg = shape("svg", {width, height, viewBox: `0 0 ${width} ${height}`});
  const left = Math.min(width * 0.3, 20 + LETTER * Math.max(...frames.map(({name}) => name.length)));
  const x = (time) => left + (time - from) / (to - from) * (width - left - RIGHT);
  const row = (height - TOP - BOTTOM) / frames.length;
  const joined = panel.type === "state-timeline";
  timeAxis(svg, {from, to, x, bottom: height - BOTTOM, top: TOP, width: width - left});
  frames.forEach((frame, index) => {
    const y = TOP + index * row;
    svg.append(shape("text", {x: left - 8, y: y + row / 2 + 4, "text-anchor": "end"}, frame.name));
    const own = settings(panel, frame);
    const filled = row * (own.custom.rowHeight ?? panel.options.rowHeight ?? 0.9);
    for (const {start, end, value} of stretches(frame.points, step, joined)) {
      const begin = Math.max(left, x(start));
      svg.append(shape("rect", {
        x: begin, y: y + (row - filled) / 2, height: filled, rx: 1, fill: valueColour(value, own),
        "fill-opacity": (own.custom.fillOpacity ?? 80) / 100,
        width: Math.max(0.5, Math.min(x(end), width - RIGHT) - begin - (joined ? 0 : 0.6)),
      }));
    }
  });
  return svg;
}

// One cell for each point; a timeline joins neighbours with the same value.
function stretches(points, step, joined) {
  const found = [];
  for (const [time, value] of points) {
    const before = found.at(-1);
    if (joined && before?.value === value && time - before.end < step) before.end = time + step;
    else found.push({start: time, end: time + step, value});
  }
  return found;
}
