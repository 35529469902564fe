// The values of a dashboard's variables: from the address, else the first one found.

export async function resolve(dashboard, prometheus, address) {
  const values = {
    __range: `${Math.round(prometheus.to - prometheus.from)}s`,
    __rate_interval: "15s",
    __interval: "5s",
  };
  for (const variable of dashboard.templating.list) {
    values[variable.name] = await valueOf(variable, values, prometheus, address);
  }
  return values;
}

async function valueOf(variable, values, prometheus, address) {
  const given = address.get(`var-${variable.name}`);
  if (given !== null) return given;
  if (variable.type === "datasource") return "Prometheus";
  if (variable.includeAll) return variable.allValue;
  const query = substitute(variable.query.query, values);
  const [, series, label] = query.match(/^label_values\((.+), (\w+)\)$/) ?? [];
  if (series) {
    const frames = await prometheus.now(`count by (${label}) (${series})`);
    return frames.map(({labels}) => labels[label]).filter(Boolean).sort()[0] ?? "";
  }
  const [, expression] = query.match(/^query_result\((.+)\)$/);
  const [worst] = await prometheus.now(expression);
  return worst?.labels[query.match(/by \((\w+)\)/)[1]] ?? "";
}

export function substitute(text, values) {
  return text.replace(/\$(?:\{(\w+)\}|(\w+))/g, (whole, braced, bare) => {
    const name = braced ?? bare;
    if (!(name in values)) throw new Error(`${whole} in ${text} is no variable of the dashboard`);
    return values[name];
  });
}

// {{label}} of a legend.
export function named(template, labels) {
  if (template === "__auto" || !template) {
    return Object.entries(labels).map(([key, value]) => `${key}="${value}"`).join(", ") || "value";
  }
  return template.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? "");
}
