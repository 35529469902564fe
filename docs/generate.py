"""Writes what repeats the code: three pages, and the table and schema of the chart's values.

``python docs/generate.py`` writes them, ``--check`` only says whether they are up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from chart_schema import chart_schema
from chart_values import chart_readme
from configuration_page import configuration_page
from tables import cell

from peerwatch_detector.config import DetectorConfig, load_preset
from peerwatch_detector.service.catalog import SPECS as DETECTOR
from peerwatch_exporter.catalog import DOMAINS as EXPORTER_DOMAINS
from peerwatch_exporter.catalog.hardware import HARDWARE
from peerwatch_exporter.catalog.sxid_codes import SXIDS
from peerwatch_exporter.catalog.xid_codes import XIDS
from peerwatch_exporter.settings.config import ExporterConfig

HERE = Path(__file__).parent
CHART = HERE.parent / "helm" / "peerwatch"
DOMAINS = {**EXPORTER_DOMAINS, "Detector": DETECTOR}
SPECS = [spec for specs in DOMAINS.values() for spec in specs]


def metrics_page() -> str:
    """Return docs/metrics.md: every metric with unit, labels, meaning, hardware and raw source."""
    used = {spec.hardware for spec in SPECS}
    lines = [
        "# Metrics",
        "",
        "Generated from `peerwatch_exporter.catalog` and `peerwatch_detector.service.catalog`;",
        "edit it there. The scrape configuration adds the target labels `node` and, where there",
        "are several, `cluster` to every series.",
        "",
        f"{len(SPECS)} metrics. The column *needs* names the smallest hardware or software that",
        "has a metric; where it is `-`, every Linux node has it.",
        "",
        "| needs | what that is |",
        "|---|---|",
        *(f"| {name} | {meaning} |" for name, meaning in HARDWARE.items() if name in used),
    ]
    table = [
        "| metric | kind | unit | labels | meaning | needs | raw source |",
        "|---|---|---|---|---|---|---|",
    ]
    for heading, specs in DOMAINS.items():
        lines += ["", f"## {heading}", "", *table]
        for spec in specs:
            labels = ", ".join(f"`{label}`" for label in spec.labels) or "-"
            lines.append(
                f"| `{spec.name}` | {spec.kind} | {spec.unit} | {labels} | {cell(spec.help)} "
                f"| {spec.hardware or '-'} | {cell(spec.source)} |"
            )
    lines += [
        "",
        "## Series the recording rules build",
        "",
        "What the detector compares nodes by, in the order it asks (preset `peerwatch`).",
        "",
        "| metric | recorded series | unit | bounds | minimum effect size | harmful direction |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{m.name}` | `{m.recorded}` | {m.unit} | {m.bounds[0]:g} to {m.bounds[1]:g} "
        f"| {m.min_effect_size:g} | {m.direction} |"
        for m in load_preset("peerwatch").metrics
    ]
    return "\n".join(lines) + "\n"


def xid_page() -> str:
    """Return docs/xid.md: every error code of GPUs and NVSwitches, and what to do."""
    lines = [
        "# XID and SXID errors",
        "",
        "Generated from `peerwatch_exporter.knowledge`; edit it there. Classes: `hardware` drain",
        "now, `degraded` drain when the job ends, `watch`, `application`, `ignore`. The setting",
        "`xid.severity` changes the class of an XID; the column NVIDIA is what its catalogue says",
        "to do at once.",
        "",
        "## XID: GPUs",
        "",
        "| XID | name | domain | class | NVIDIA | what to do |",
        "|---|---|---|---|---|---|",
        *(
            f"| {xid.code} | `{xid.mnemonic}` | {xid.domain} | `{xid.severity}` "
            f"| {xid.immediate_action} | {xid.advice} |"
            for xid in XIDS.values()
        ),
        "",
        "## SXID: NVSwitches",
        "",
        "| SXID | meaning | class | what to do |",
        "|---|---|---|---|",
        *(
            f"| {sxid.code} | {sxid.meaning} | `{sxid.severity}` | {sxid.advice} |"
            for _, sxid in sorted(SXIDS.items())
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check the pages; 1 if a checked page is stale."""
    stale = []
    pages = {
        "metrics.md": metrics_page(),
        "configuration.md": configuration_page(),
        "xid.md": xid_page(),
        "../helm/peerwatch/README.md": chart_readme(
            (CHART / "README.md").read_text(), (CHART / "values.yaml").read_text()
        ),
        "../helm/peerwatch/values.schema.json": chart_schema(
            (CHART / "values.schema.json").read_text(),
            {"exporter": ExporterConfig, "detector": DetectorConfig},
        ),
    }
    for name, page in pages.items():
        path = HERE / name
        if path.exists() and path.read_text() == page:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(page)
    if stale and "--check" in sys.argv:
        print(f"Stale: {', '.join(stale)}. Run: python docs/generate.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
