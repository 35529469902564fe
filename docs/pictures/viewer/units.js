// Numbers as people read them, by Grafana's names of units.

const POWERS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const BINARY = [[2 ** 50, "Pi"], [2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"]];
const TIMES = [
  [86400 * 365, "years"], [86400, "days"], [3600, "hours"], [60, "min"], [1, "s"], [1e-3, "ms"],
  [1e-6, "µs"],
];
const SUFFIXES = {watt: "W", hertz: "Hz", joule: "J", pps: "p/s", short: "", "si:T/s": "T/s"};

export function format(value, unit, decimals) {
  if (value === null || Number.isNaN(value)) return "";
  if (unit === "s") return scaled(value, TIMES, decimals, " ");
  if (unit === "percentunit") return `${rounded(value * 100, decimals)} %`;
  if (unit === "celsius") return `${rounded(value, decimals)} °C`;
  if (unit === "sci") return value === 0 ? "0" : value.toExponential(1);
  if (unit === "dateTimeAsIso") return new Date(value).toISOString().slice(0, 19).replace("T", " ");
  if (unit === "bytes") return scaled(value, [...BINARY, [1, ""]], decimals, " ") + "B";
  if (unit === "binBps") return scaled(value, [...BINARY, [1, ""]], decimals, " ") + "B/s";
  const suffix = SUFFIXES[unit] ?? unit;
  return scaled(value, POWERS, decimals, suffix ? " " : "") + suffix;
}

function scaled(value, scale, decimals, space) {
  if (value === 0) return scale === TIMES ? "0 s" : `0${space}`;
  const size = Math.abs(value);
  const [factor, name] = scale.find(([limit]) => size >= limit) ?? scale.at(-1);
  const exact = factor === 1 && name !== "s" && size < 1 ? 2 : decimals;
  return `${rounded(value / factor, exact)}${space}${name}`;
}

function rounded(value, decimals) {
  const digits = decimals ?? (Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);
  const text = value.toFixed(digits);
  return decimals === undefined && digits ? text.replace(/\.?0+$/, "") : text;
}
