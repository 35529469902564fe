// The time axis that graphs, timelines and heat maps share.

import {shape} from "./dom.js";

const STEPS = [10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];

export function timeTicks(from, to, wanted) {
  const step = STEPS.find((seconds) => (to - from) / seconds <= wanted) ?? STEPS.at(-1);
  const ticks = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) ticks.push(time);
  return ticks;
}

export function clock(seconds, withSeconds = seconds % 60 > 0) {
  return new Date(seconds * 1000).toISOString().slice(11, withSeconds ? 19 : 16);
}

export function timeAxis(svg, {from, to, x, bottom, top, width}) {
  for (const time of timeTicks(from, to, Math.max(2, width / 90))) {
    svg.append(
      shape("line", {x1: x(time), x2: x(time), y1: top, y2: bottom, class: "grid"}),
      shape("text", {x: x(time), y: bottom + 15, "text-anchor": "middle"}, clock(time)),
    );
  }
}
