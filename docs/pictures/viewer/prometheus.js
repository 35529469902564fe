// Asks Prometheus what Grafana would ask it, and returns frames: {labels, points: [[seconds, value]]}.

export class Prometheus {
  constructor(url, from, to) {
    Object.assign(this, {url, from, to});
  }

  // Enough points for a panel of this many pixels, but no more than there are scrapes.
  step(points) {
    return Math.max(2, Math.ceil((this.to - this.from) / points));
  }

  async range(query, step) {
    // Grafana lets ranges begin at multiples of the step.
    const start = Math.floor(this.from / step) * step;
    const result = await this.ask("query_range", {query, start, end: this.to, step});
    return result.map(({metric, values}) => frame(metric, values));
  }

  async now(query) {
    const result = await this.ask("query", {query, time: this.to});
    return result.map(({metric, value}) => frame(metric, [value]));
  }

  async ask(path, parameters) {
    const answer = await fetch(`${this.url}/api/v1/${path}`, {
      method: "POST", body: new URLSearchParams(parameters),
    });
    const {status, data, error} = await answer.json();
    if (status !== "success") throw new Error(`${parameters.query}: ${error}`);
    return data.result;
  }
}

function frame(labels, values) {
  return {labels, points: values.map(([time, value]) => [time, Number(value)])};
}
