"""Runs ``peerwatch-responder advise``."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from peerwatch_common.errors import PeerwatchError
from peerwatch_responder.action import UnknownError
from peerwatch_responder.retry.adviser import Adviser
from peerwatch_responder.retry.answer import EXIT_STATUS
from peerwatch_responder.retry.assessment.knowledge import load_knowledge
from peerwatch_responder.retry.command.sources import logs_and_facts
from peerwatch_responder.retry.history.store import History
from peerwatch_responder.retry.model.chosen import chosen_model
from peerwatch_responder.retry.reading.files import LogError
from peerwatch_responder.retry.report.as_json import as_json
from peerwatch_responder.retry.report.text import advice_lines
from peerwatch_responder.settings.config import ServerConfig

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from peerwatch_responder.retry.adviser import Incident
    from peerwatch_responder.retry.reading.facts import JobFacts
    from peerwatch_responder.settings.config import ResponderConfig

# As argparse ends.
USAGE_STATUS = 2


class UsageError(PeerwatchError):
    """The flags contradict one another; the message says how."""


def advise(options: argparse.Namespace, config: ResponderConfig) -> int:
    """Print the advice on a job; return the exit status that says it.

    Raises
    ------
    PeerwatchError
        If the logs cannot be read, or a correction cannot be written.
    """
    try:
        _check(options)
    except UsageError as error:
        sys.stderr.write(f"peerwatch-responder advise: {error}\n")
        return USAGE_STATUS
    try:
        logs, facts = logs_and_facts(options, config)
    except UnknownError as error:
        raise LogError(str(error)) from error
    if options.node and len(logs) == 1:
        logs = [replace(logs[0], node=options.node)]
    adviser = _adviser(options, config)
    if options.correct:
        advice = adviser.correct(logs, facts, options.correct, options.note)
    else:
        advice = adviser.advise(logs, facts)
    if options.json:
        sys.stdout.write(json.dumps(as_json(advice)) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in advice_lines(advice))
    return EXIT_STATUS[advice.kind]


def _check(options: argparse.Namespace) -> None:
    named = options.slurm_job_id or options.pod
    if not (options.logs or named or options.exit_code is not None or options.reason):
        raise UsageError(
            "nothing is said of the job; give its logs, - for standard input, --slurm-job-id, "
            "--pod, or --exit-code"
        )
    if options.slurm_job_id and options.pod:
        raise UsageError("--slurm-job-id and --pod are two jobs; give one of them")
    if options.pods_directory is not None and not options.pod:
        raise UsageError("--pods-directory is for --pod, which is missing")
    if options.no_history and options.correct:
        raise UsageError("--correct writes to the history; leave out --no-history")


def _adviser(options: argparse.Namespace, settings: ResponderConfig) -> Adviser:
    config = settings.retry
    knowledge = load_knowledge(
        config.signatures, config.advice, config.max_retries, config.backoff_seconds
    )
    path = options.history or config.history
    server = settings.prometheus
    if options.prometheus:
        server = ServerConfig(url=options.prometheus)
    return Adviser(
        knowledge,
        None if options.no_history else History(path),
        None if server is None else _asks(server),
        None if options.no_model else chosen_model(config.model, config.model_file),
    )


def _asks(server: ServerConfig) -> Callable[[JobFacts], Incident]:
    from peerwatch_responder.retry.prometheus import PrometheusIncident  # noqa: PLC0415 - requests

    return PrometheusIncident(server)
