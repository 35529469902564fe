// Draws a dashboard of Grafana from its JSON, with the panels that Peerwatch's dashboards use.
//
//   index.html?dashboard=job&prometheus=http://127.0.0.1:9090&from=…&to=…&rows=1,2&var-job_id=…
//
// It is no Grafana: it exists so that pictures in the documentation show what is shipped.

import {clock} from "./axes.js";
import {cells} from "./cells.js";
import {element} from "./dom.js";
import {colour, settings, text, valueColour} from "./fields.js";
import {Prometheus} from "./prometheus.js";
import {table} from "./table.js";
import {timeseries} from "./timeseries.js";
import {named, resolve, substitute} from "./variables.js";

const CELL = 30, GAP = 8, COLUMNS = 24, TITLE = 30;
const KINDS = {
  timeseries, table, stat, "status-history": cells, "state-timeline": cells,
};

async function main() {
  const address = new URLSearchParams(location.search);
  const dashboard = await (await fetch(`/material/${address.get("dashboard")}.json`)).json();
  const [from, to] = ["from", "to"].map((name) => Number(address.get(name)));
  const prometheus = new Prometheus(address.get("prometheus"), from, to);
  const values = await resolve(dashboard, prometheus, address);
  head(dashboard, values, prometheus);
  const annotations = await events(dashboard, values, prometheus);
  const chosen = (address.get("rows") ?? "").split(",").filter(Boolean).map(Number);
  const panels = shown(dashboard.panels, chosen);
  await Promise.all(panels.map((panel) => place(panel, {values, prometheus, annotations})));
  document.querySelector("main").style.height = `${bottomOf(panels)}px`;
  requireStyles();
  await report("");
}

// A style sheet that did not come makes a picture that nobody wants.
function requireStyles() {
  const missing = [...document.querySelectorAll("link[rel=stylesheet]")].find(({sheet}) => !sheet?.cssRules.length);
  if (missing) throw new Error(`${missing.href} did not come`);
}

// The panels of the chosen rows (from 1; none: all), moved up to where the others were.
function shown(panels, chosen) {
  let row = 0, up = 0, end = 0;
  const kept = [];
  for (const panel of panels) {
    const {y, h} = panel.gridPos;
    if (panel.type === "row") row += 1;
    if (chosen.length && !chosen.includes(row)) continue;
    if (panel.type === "row") up = y - end;
    kept.push({...panel, gridPos: {...panel.gridPos, y: y - up}});
    end = Math.max(end, y - up + h);
  }
  return kept;
}

const bottomOf = (panels) =>
  Math.max(...panels.map(({gridPos: {y, h}}) => (y + h) * (CELL + GAP)));

function head(dashboard, values, {from, to}) {
  const variables = dashboard.templating.list.filter(({type}) => type === "query");
  document.querySelector("header").append(
    element("h1", {}, dashboard.title),
    ...variables.map(({name, label}) => element("span", {class: "variable"},
      element("span", {}, label), element("span", {}, values[name] === ".*" ? "All" : values[name]))),
    element("span", {class: "range"}, `${clock(from, true)} to ${clock(to, true)} UTC`));
}

async function events(dashboard, values, prometheus) {
  const step = 5, found = [];
  for (const annotation of dashboard.annotations.list) {
    const frames = await prometheus.range(substitute(annotation.expr, values), step);
    for (const {points} of frames) {
      if (annotation.useValueForTime) {
        for (const time of new Set(points.map(([, value]) => value / 1000))) {
          found.push({start: time, end: time, colour: colour(annotation.iconColor)});
        }
      } else {
        found.push({start: points[0][0], end: points.at(-1)[0], colour: colour(annotation.iconColor)});
      }
    }
  }
  return found;
}

async function place(panel, context) {
  const {x, y, w, h} = panel.gridPos;
  const unit = (document.querySelector("main").clientWidth + GAP) / COLUMNS;
  const width = w * unit - GAP, height = h * (CELL + GAP) - GAP;
  const row = panel.type === "row";
  const title = substitute(panel.title, context.values);
  const section = element("section", {
    class: row ? "row" : "panel",
    style: `left:${x * unit}px;top:${y * (CELL + GAP)}px;width:${width}px;height:${height}px`,
  }, row ? `⌄  ${title}` : element("h2", {}, title));
  document.querySelector("main").append(section);
  if (row) return;
  const frames = await ask(panel, width, context);
  const size = {width: width - 2, height: height - TITLE - 4, from: context.prometheus.from};
  const body = element("div", {class: "body"});
  section.append(body);
  body.append(draw(panel, frames, {...size, ...context, to: context.prometheus.to}));
}

async function ask(panel, width, {values, prometheus}) {
  const step = prometheus.step(panel.maxDataPoints ?? width / 2);
  const perTarget = await Promise.all(panel.targets.map(async (target) => {
    const query = substitute(target.expr, {...values, __interval: `${step}s`});
    const frames = target.instant ? await prometheus.now(query) : await prometheus.range(query, step);
    return frames.map((frame) => ({
      ...frame, step, refId: target.refId, name: named(target.legendFormat, frame.labels),
    }));
  }));
  return perTarget.flat();
}

function draw(panel, frames, context) {
  const empty = element("div", {class: "empty"}, panel.fieldConfig.defaults.noValue ?? "No data");
  if (!frames.length) return empty;
  const kind = KINDS[panel.type];
  if (!kind) throw new Error(`${panel.title}: no way to draw a panel of type ${panel.type}`);
  return kind(panel, frames, {...context, step: frames[0].step}) ?? empty;
}

function stat(panel, frames, {width}) {
  const [frame] = frames;
  const own = settings(panel, frame);
  const value = frame.points.at(-1)[1];
  const shownText = text(value, own);
  const size = Math.min(34, width * 1.5 / Math.max(4, shownText.length));
  return element("div", {class: "stat"},
    ...(panel.options.textMode === "value_and_name"
      ? [element("div", {class: "name"}, frame.name)] : []),
    element("div", {
      class: "value", style: `font-size:${size}px;color:${valueColour(value, own)}`,
    }, shownText));
}

// Tells who asked how it went: nothing, or what went wrong.
const report = (problem) => fetch("/report", {method: "POST", body: problem});

main().catch((error) => report(String(error.stack ?? error)));
