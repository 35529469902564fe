"""``peerwatch-detector diagnose``: the verdicts that stand about a job, with stacks on request."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial

from peerwatch_common.logs import one_line
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.diagnosis.report.main_thread import main_thread_place
from peerwatch_detector.diagnosis.root.answer import root_json, root_text
from peerwatch_detector.diagnosis.root.live.root import LiveRoot, ask_root
from peerwatch_detector.errors import ReadError
from peerwatch_detector.frame import Series
from peerwatch_detector.reading import promql
from peerwatch_detector.reading.reader import (
    PrometheusReader,
    exporter_access,
    exporters_of_job,
)
from peerwatch_detector.reading.span_reader import SpanReading, read_span_lines

_LABELS = ("class", "node", "rank", "domain", "confidence", "action", "summary")
# How long ago a rank's exporter may have been scraped last: Prometheus' look-back of five minutes.
_RECENT_SECONDS = 300.0

Row = dict[str, str]


def run_diagnose(options: argparse.Namespace, config: DetectorConfig) -> int:
    """Print what stands about a job.

    Returns
    -------
    int
        0; 1 if no detector has diagnosed the job, or a stack could not be had.

    Raises
    ------
    ConfigError
        If the password for exporters cannot be read.
    ReadError
        If Prometheus cannot be read.
    """
    how = exporter_access(config) if options.stacks else None
    with PrometheusReader(config.prometheus) as reader:
        diagnosed = reader.instant(promql.diagnosed(options.job_id), options.at)
        rows = _rows(reader.instant(promql.published_verdicts(options.job_id), options.at))
        exporters = {} if how is None else _exporters(reader, options.job_id, config)
        root = _ask_root(reader, options) if options.root else None
    if root is None and not diagnosed and not rows:
        sys.stderr.write(
            f"peerwatch-detector: no detector that {config.prometheus.shown_url} scrapes has "
            f"diagnosed job {options.job_id!r}; check --job-id, and diagnosis.enabled.\n"
        )
        return 1
    failed = [] if how is None else _add_stacks(rows, options.job_id, exporters, how)
    if root is not None:
        known = _print_root(options, rows, root)
    else:
        known = True
        age = time.time() - float(diagnosed[0].values[-1]) if diagnosed else None
        text = json.dumps(rows) if options.json else _text(options.job_id, rows, age)
        sys.stdout.write(f"{text}\n")
    sys.stderr.write("".join(f"peerwatch-detector: {one_line(reason)}\n" for reason in failed))
    return 1 if failed or not known else 0


def _ask_root(reader: PrometheusReader, options: argparse.Namespace) -> LiveRoot:
    at = options.at
    moment = time.time() if at is None else at
    answer = partial(reader.instant, at=at)
    return ask_root(answer, options.job_id, moment, at_now=at is None)


def _print_root(options: argparse.Namespace, rows: Sequence[Row], found: LiveRoot) -> bool:
    """Print the root of a job's failure, then the verdicts; False if the job is not known."""
    root, job = found.root, found.places
    if not job.nodes and not rows:
        sys.stderr.write(
            f"peerwatch-detector: no rank of job {options.job_id!r} was seen in the last 30 "
            "minutes before; check --job-id and --at.\n"
        )
        return False
    if options.json:
        text = json.dumps({"root": root_json(root, job), "verdicts": rows})
    else:
        text = f"{root_text(root, job)}\n\n{_text(options.job_id, rows, None)}"
    sys.stdout.write(f"{text}\n")
    return True


def _rows(found: Sequence[Series]) -> list[Row]:
    rows = [{name: series.labels.get(name, "") for name in _LABELS} for series in found]
    return sorted(rows, key=lambda row: (row["confidence"] == "undecided", *row.values()))


def _exporters(reader: PrometheusReader, job_id: str, config: DetectorConfig) -> dict[str, str]:
    """Return the URL of each node's exporter."""
    now, settings = time.time(), config.exporters
    found = exporters_of_job(reader, job_id, settings.address_label, now - _RECENT_SECONDS, now)
    return {node: f"{settings.scheme}://{address}" for address, node in found.items()}


def _add_stacks(
    rows: Sequence[Row], job_id: str, exporters: dict[str, str], how: SpanReading
) -> list[str]:
    """Add the stack of every rank that is named, and where its main thread is.

    Every rank is asked once. Returns why some stacks could not be had.
    """
    stacks: dict[tuple[str, str], str] = {}
    failed = []
    for row in rows:
        whom = row["node"], row["rank"]
        if not all(whom):
            continue
        url = exporters.get(row["node"])
        if url is None:
            failed.append(f"no exporter of node {row['node']} is known; its stacks are left out.")
            continue
        try:
            if whom not in stacks:
                query = {"job_id": job_id, "rank": row["rank"]}
                lines = read_span_lines(url, query, how, "stack")
                stacks[whom] = b"".join(lines).decode(errors="replace")
            row["stack"] = stacks[whom]
            row["main_thread"] = main_thread_place(row["stack"])
        except ReadError as error:
            failed.append(str(error))
    return failed


def _text(job_id: str, rows: Sequence[Row], age: float | None) -> str:
    when = "" if age is None else f" (diagnosed {max(0.0, age):.0f} s ago)"
    if not rows:
        return f"Nothing stands against job {one_line(job_id)}{when}."
    parts = [f"Job {one_line(job_id)}{when}:"]
    for row in rows:
        facts = f"{row['class']}, {row['confidence']}, {row['domain']}, action {row['action']}"
        place = row.get("main_thread")
        where = f"; its main thread is at {place}" if place else ""
        parts.append(f"\n{one_line(row['summary'] + where)}\n  {facts}")
        if stack := row.get("stack"):
            parts += [f"    {line}" for line in stack.splitlines()]
    return "\n".join(parts)
