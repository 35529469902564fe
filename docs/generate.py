"""Writes what repeats the code: documents and tables in them, recording rules, the chart's schema.

``python docs/generate.py`` writes them, ``--check`` only says whether they are up to date.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from alert_sources import FILE, source_rules, without_source_rows
from chart_schema import chart_schema
from chart_values import chart_readme
from check_tables import (
    active_check_rows,
    check_setting_rows,
    floor_rows,
    floor_source_rows,
    health_condition_rows,
)
from configuration_document import configuration_document
from generated_tables import (
    alert_rows,
    check_rows,
    collector_rows,
    config_key_rows,
    not_drawn_rows,
)
from recording_rules import RULE_SETS, recording_rules
from slow_rule_tests import slow_rule_tests
from tables import cell, with_table

from peerwatch_checks.settings.config import ChecksConfig
from peerwatch_detector.config import DetectorConfig, load_preset
from peerwatch_detector.service.catalog import SPECS as DETECTOR
from peerwatch_exporter.catalog.hardware import HARDWARE
from peerwatch_exporter.catalog.sxid_codes import SXIDS
from peerwatch_exporter.catalog.xid_codes import XIDS
from peerwatch_exporter.collector import metrics_by_topic, registrations
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_reliability.run.metrics import SPECS as RELIABILITY
from peerwatch_reliability.settings.config import ReliabilityConfig
from peerwatch_responder.retry.metrics import SPECS as RETRY
from peerwatch_responder.run.metrics import SPECS as RESPONDER

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "peerwatch"
TOPICS = {
    **metrics_by_topic(),
    "Detector": DETECTOR,
    "Responder": (*RESPONDER, *RETRY),
    "Reliability": RELIABILITY,
}
SPECS = [spec for specs in TOPICS.values() for spec in specs]


def metrics_document() -> str:
    """Return docs/metrics.md: every metric with unit, labels, meaning, hardware and raw source."""
    used = {spec.hardware for spec in SPECS}
    lines = [
        "# Metrics",
        "",
        f"The {len(SPECS)} metrics of exporter, detector, responder and reliability program. The",
        "scrape configuration adds the target labels `node` and, if there are several clusters,",
        "`cluster` to every series. The column *needs* is the minimum hardware or software",
        "that has a metric; with",
        "`-`, every Linux node has it. The column *every* is how often the exporter reads it; what",
        "programs say of themselves has none. Generated from the programs' own declarations.",
        "",
        "| needs | meaning |",
        "|---|---|",
        *(f"| {name} | {meaning} |" for name, meaning in HARDWARE.items() if name in used),
    ]
    table = [
        "| metric | kind | unit | labels | meaning | needs | every | raw source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    every = {
        spec.name: f"{max(item.interval_seconds, spec.every_seconds):g} s"
        for item in registrations().values()
        for spec in item.metrics
    }
    for heading, specs in TOPICS.items():
        lines += ["", f"## {heading}", "", *table]
        for spec in specs:
            labels = ", ".join(f"`{label}`" for label in spec.labels) or "-"
            lines.append(
                f"| `{spec.name}` | {spec.kind} | {spec.unit} | {labels} | {cell(spec.help)} "
                f"| {spec.hardware or '-'} | {every.get(spec.name, '-')} | {cell(spec.source)} |"
            )
    lines += [
        "",
        "## Series the recording rules build",
        "",
        "The metrics that nodes are compared by, in order of priority (preset `peerwatch`).",
        "",
        "| metric | meaning | recorded series | unit | bounds | minimum effect size "
        "| harmful direction |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{m.name}` | {m.title}. {cell(m.meaning)} | `{m.recorded}` | {m.unit} "
        f"| {m.bounds[0]:g} to {m.bounds[1]:g} "
        f"| {m.min_effect_size:g} | {m.direction} |"
        for m in load_preset("peerwatch").metrics
    ]
    lines += [
        "",
        "Nodes are not compared by these: the job's progress is computed from them.",
        "",
        "| counter | meaning | recorded series |",
        "|---|---|---|",
        *(
            f"| `{m.name}` | {m.shown_title}. {cell(m.meaning)} | `{m.recorded}` |"
            for m in load_preset("peerwatch").progress
        ),
    ]
    return "\n".join(lines) + "\n"


def xid_document() -> str:
    """Return docs/xid.md: every error code of GPUs and NVSwitches, and what to do."""
    lines = [
        "# XID and SXID errors",
        "",
        "Every error code that the NVIDIA driver logs, and what to do about it. Classes:",
        "`hardware` drain now, `degraded` drain when the job ends, `watch`, `application`,",
        "`ignore`. The setting `xid.severity` changes the class of an XID; the column NVIDIA is",
        "the immediate action in NVIDIA's catalogue. Generated from the exporter's catalogue.",
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


def terms_file() -> str:
    """Return the glossary as the web UI has it: what each term means, without links and marks."""
    found: dict[str, str] = {}
    for line in (ROOT / "docs/glossary.md").read_text().splitlines():
        if row := re.match(r"\| (\*\*.*?) \| (.*) \|$", line):
            meaning = re.sub(r" ?\(\[[^\]]*\]\([^)]*\)\)", "", row[2])
            meaning = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", meaning)
            for name in re.findall(r"\*\*(.+?)\*\*", row[1]):
                found[name] = re.sub(r"[*`]", "", meaning)
    return json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def generated() -> dict[Path, str]:
    """Return the text of every file, by its path from the root of the repository."""
    documents = {
        Path("docs/metrics.md"): metrics_document(),
        Path("docs/configuration.md"): configuration_document(),
        Path("docs/xid.md"): xid_document(),
        Path("detector/peerwatch_detector/web/terms.json"): terms_file(),
        Path("helm/peerwatch/README.md"): chart_readme(
            (CHART / "README.md").read_text(), (CHART / "values.yaml").read_text()
        ),
        Path("helm/peerwatch/values.schema.json"): chart_schema(
            (CHART / "values.schema.json").read_text(),
            {
                "exporter": ExporterConfig,
                "checks": ChecksConfig,
                "detector": DetectorConfig,
                "reliability": ReliabilityConfig,
            },
        ),
    }
    tables = {
        Path("docs/rules.md"): ("alerts", alert_rows()),
        Path("docs/dashboards.md"): ("not drawn", not_drawn_rows()),
        Path("docs/runbooks/PeerwatchFaultyNode.md"): ("checks", check_rows()),
        Path("exporter/README.md"): ("collectors", collector_rows()),
        Path("docs/config-check.md"): ("config keys", config_key_rows()),
        Path("docs/health-conditions.md"): ("health conditions", health_condition_rows()),
    }
    for path, (name, rows) in tables.items():
        documents[path] = with_table((ROOT / path).read_text(), name, rows)
    checks = Path("docs/checks.md")
    documents[checks] = (ROOT / checks).read_text()
    for name, rows in (
        ("active checks", active_check_rows()),
        ("settings of checks", check_setting_rows()),
        ("floors", floor_rows()),
        ("sources of floors", floor_source_rows()),
    ):
        documents[checks] = with_table(documents[checks], name, rows)
    rules = Path("docs/rules.md")
    documents[rules] = with_table(
        documents[rules], "alerts without a source", without_source_rows()
    )
    cases = (ROOT / "tests/rules/recording.test.yaml").read_text()
    documents[Path("tests/rules/slow.test.yaml")] = slow_rule_tests(cases)
    for name, rules in RULE_SETS.items():
        documents[Path("rules", name)] = recording_rules(rules)
    documents[Path("rules", FILE)] = source_rules()
    return documents


def main() -> int:
    """Write or check the files; 1 if a checked file is stale."""
    stale = []
    for path, text in generated().items():
        if (ROOT / path).exists() and (ROOT / path).read_text() == text:
            continue
        stale.append(str(path))
        if "--check" not in sys.argv:
            (ROOT / path).write_text(text)
    if stale and "--check" in sys.argv:
        print(f"Stale: {', '.join(stale)}. Run: make generate", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
