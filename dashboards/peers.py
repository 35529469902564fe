"""The row that draws one node against the others of its job: a panel per detection metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from board import in_lines
from parts import GREY, Panel, fixed, graph, properties

PRESET = (
    Path(__file__).resolve().parents[1]
    / "detector/peerwatch_detector/config/presets/peerwatch.yaml"
)

# Grafana's units for ours; a unit that is not here is drawn as a plain number.
UNITS = {
    "seconds": "s",
    "bytes": "bytes",
    "bytes per second": "binBps",
    "packets per second": "pps",
    "frames per second": "pps",
    "segments per second": "pps",
    "ratio": "percentunit",
    "watts": "watt",
    "hertz": "hertz",
}

_LOWEST, _MEDIAN, _HIGHEST = "peers, lowest", "peers, median", "peers, highest"


def panels(job: str) -> list[Panel]:
    """Return a panel for every detection metric of the preset, in its order.

    Parameters
    ----------
    job
        Label matchers of the training job.
    """
    preset = yaml.safe_load(PRESET.read_text())
    return in_lines([_panel(metric, job) for metric in preset["metrics"]])


def _panel(metric: dict[str, Any], job: str) -> Panel:
    """Return the peers as a grey band with their median, and the chosen node on top of it.

    The band costs three series however many nodes the job has; a line per node would stop the
    browser at a few hundred.
    """
    others = f'{metric["recorded"]}{{{job}, node!="$node"}}'
    chosen = f'{metric["recorded"]}{{{job}, node="$node"}}'
    per_gpu = metric["scope"] == "gpu"
    kept, legend = ("node, gpu", "{{node}} GPU {{gpu}}") if per_gpu else ("node", "{{node}}")
    edge = {"color": fixed(GREY), "custom.lineWidth": 0}
    line: dict[str, Any] = {"custom.lineWidth": 2}
    if not per_gpu:  # eight GPUs need eight colours
        line["color"] = fixed("orange")
    panel = (
        graph(
            metric["title"],
            f"The chosen node against the band of all others of the job. {metric['meaning']}",
            UNITS.get(metric["unit"], "short"),
            (f"min({others})", _LOWEST),
            (f"quantile(0.5, {others})", _MEDIAN),
            (f"max({others})", _HIGHEST),
            (f"max by ({kept}) ({chosen})", legend),
            table_legend=False,
        )
        .override_by_query("A", properties(edge))
        .override_by_query(
            "B",
            properties(
                {
                    "color": fixed(GREY),
                    "custom.lineStyle": {"fill": "dash", "dash": [6, 4]},
                }
            ),
        )
        .override_by_query(
            "C", properties({**edge, "custom.fillBelowTo": _LOWEST, "custom.fillOpacity": 20})
        )
        .override_by_query("D", properties(line))
    )
    return panel.max(1) if metric["unit"] == "ratio" else panel
