// Tables: the frames' labels and values as rows, through the transformations merge,
// groupingToMatrix and organize.

import {element} from "./dom.js";
import {settings, text, valueColour} from "./fields.js";

export function table(panel, frames) {
  const several = panel.targets.length > 1;
  const grouping = panel.transformations.find(({id}) => id === "groupingToMatrix");
  const found = frames.map(({labels, points, refId}) => ({
    ...labels, [several ? `Value #${refId}` : "Value"]: points.at(-1)[1],
  }));
  const rows = grouping ? grouped(found, grouping.options) : merged(found);
  if (!rows.length) return null;
  const organize = panel.transformations.find(({id}) => id === "organize").options;
  const keys = [...new Set(rows.flatMap(Object.keys))]
    .filter((key) => !organize.excludeByName?.[key])
    .sort((a, b) => (organize.indexByName?.[a] ?? 99) - (organize.indexByName?.[b] ?? 99));
  const type = (key) => (rows.some((row) => typeof row[key] === "number") ? "number" : "string");
  const columns = keys
    .map((key) => ({key, name: organize.renameByName[key] ?? key, type: type(key)}))
    .map((column) => ({...column, own: settings(panel, column)}))
    .filter(({own}) => !own.custom.hidden);
  const width = ({custom}) => (custom.width ? `min-width:${custom.width - 20}px` : "");
  return element("table", {},
    element("tr", {}, ...columns.map(({name, own}) => element("th", {style: width(own)}, name))),
    ...rows.map((row) => element("tr", {}, ...columns.map((column) => cell(row, column)))));
}

// Rows whose common labels are equal are one row.
function merged(rows) {
  const found = [];
  for (const row of rows) {
    const same = found.find((other) => Object.keys(row).every((key) =>
      key.startsWith("Value") ? !(key in other) : !(key in other) || other[key] === row[key])
      && Object.keys(row).some((key) => !key.startsWith("Value") && key in other));
    if (same) Object.assign(same, row);
    else found.push({...row});
  }
  return found;
}

// One row for each value of a label, one column for each value of another.
function grouped(rows, {rowField, columnField, valueField}) {
  const names = (field) => [...new Set(rows.map((row) => row[field]))].sort();
  return names(rowField).map((name) => {
    const made = {[`${rowField}\\${columnField}`]: name};
    for (const column of names(columnField)) {
      made[column] = rows.find((row) =>
        row[rowField] === name && row[columnField] === column)?.[valueField];
    }
    return made;
  });
}

function cell(row, {key, own}) {
  const value = row[key];
  if (value === undefined) return element("td", {}, own.noValue ?? "");
  const kind = own.custom.cellOptions?.type;
  const words = typeof value === "string" && !own.mappings?.length;
  const paint = {"color-text": "color:", "color-background": "color:#111217;background:"}[kind];
  return element("td", {
    class: [typeof value === "number" ? "number" : "", own.links ? "link" : ""].join(" "),
    style: paint && !words ? paint + valueColour(value, own) : "",
  }, text(value, own));
}
