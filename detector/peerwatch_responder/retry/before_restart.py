"""Advises the responder before an action starts a job again."""

from __future__ import annotations

import glob
import logging
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_responder.advice import Advice
from peerwatch_responder.retry.adviser import Adviser
from peerwatch_responder.retry.assessment.knowledge import load_knowledge
from peerwatch_responder.retry.history.store import History
from peerwatch_responder.retry.model.chosen import chosen_model
from peerwatch_responder.retry.prometheus import PrometheusIncident
from peerwatch_responder.retry.reading.bounded import LARGEST, TOTAL_BYTES
from peerwatch_responder.retry.reading.cluster_jobs import job_of_cluster
from peerwatch_responder.retry.reading.files import LogError, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerwatch_responder.advice import Job, Verdict
    from peerwatch_responder.retry.answer import Kind, RetryAdvice
    from peerwatch_responder.retry.reading.cluster_jobs import ClusterJob
    from peerwatch_responder.retry.reading.log_text import LogText
    from peerwatch_responder.settings.config import ResponderConfig

_LOG = logging.getLogger(__name__)

_VERDICTS: dict[Kind, Verdict] = {
    "retry": "retry",
    "retry_elsewhere": "retry_elsewhere",
    "retry_with_backoff": "retry_later",
    "do_not_retry": "stop",
    "ask_user": "ask",
}
# The alert speaks of a fault of which the job may not know yet.
_SILENT = {"no_failure", "no_log"}
# Chosen: output and errors of 2,048 ranks; at 64 KiB each (bounded.py) they take 256 MiB.
_MOST_FILES = 4096
# Chosen: a line has up to 300 characters (redact.LONGEST), a text of the history 400.
_QUOTED = 2


class LogAdvisor:
    """Reads a job's logs before it is started again.

    Parameters
    ----------
    adviser
        Who assesses them.
    gather
        Returns what the cluster knows of a job.
    patterns
        Where jobs write, as paths with wildcards and ``{job_id}``.
    """

    def __init__(
        self,
        adviser: Adviser,
        gather: Callable[[Job], ClusterJob],
        patterns: Sequence[str] = (),
    ) -> None:
        self._adviser = adviser
        self._gather = gather
        self._patterns = patterns

    def advise(self, job: Job) -> Advice:
        """Return whether the job is started again.

        Raises
        ------
        UnknownError
            If the cluster does not answer.
        """
        known = self._gather(job)
        logs = [*known.logs, *logs_of(self._patterns, job.job_id)]
        found = self._adviser.advise(logs, known.facts)
        _LOG.info(
            "advised job_id=%s advice=%s reason=%s confidence=%.2f root=%s",
            *(job.job_id, found.kind, found.reason, found.confidence, found.fingerprint),
        )
        return _as_advice(found)


def make_log_advisor(config: ResponderConfig) -> LogAdvisor:
    """Return the advisor that the settings describe.

    Raises
    ------
    ConfigError
        With every mistake in the user's files.
    """
    retry = config.retry
    knowledge = load_knowledge(
        retry.signatures, retry.advice, retry.max_retries, retry.backoff_seconds
    )
    server = config.prometheus
    adviser = Adviser(
        knowledge,
        History(retry.history),
        None if server is None else PrometheusIncident(server),
        chosen_model(retry.model, retry.model_file),
        writes=not config.dry_run,
    )
    return LogAdvisor(adviser, job_of_cluster(config), retry.logs)


def logs_of(patterns: Sequence[str], job_id: str) -> list[LogText]:
    """Return the logs of a job that match patterns; those that cannot be read are left out."""
    # Anybody may call a job whatever they like: its id is one name in a path.
    name = job_id.replace("/", "_")
    if not name or set(name) == {"."}:
        return []
    found = (
        path
        for pattern in patterns
        for path in glob.iglob(pattern.replace("{job_id}", glob.escape(name)), recursive=True)  # noqa: PTH207
    )
    paths = dict.fromkeys(islice(found, _MOST_FILES))
    bound = LARGEST.shared(len(paths), TOTAL_BYTES)
    logs = []
    for path in paths:
        try:
            logs.append(read_log(Path(path), bound))
        except (LogError, OSError) as error:
            _LOG.warning("log not read path=%s detail=%s", path, str(error))
    return logs


def _as_advice(found: RetryAdvice) -> Advice:
    if found.reason in _SILENT:
        return Advice("retry", found.reason, "The job has not written of a failure.")
    quoted = "; ".join(f"{line.log}: {line.text}" for line in found.lines[:_QUOTED])
    text = f"{found.text} ({quoted})" if quoted else found.text
    return Advice(_VERDICTS[found.kind], found.reason, text, found.wait_seconds)
