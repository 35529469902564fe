"""What goes to the log: changes. Failures that begin or end, findings that come or fall."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from peerwatch_common.errors import PeerwatchError
from peerwatch_detector.detection.explanation.explain import Explanation
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.errors import ThrottledError

logger = logging.getLogger(__name__)

# What fails: the discovery, the other members, ("job", job_id), or
# ("job", job_id, metric). Job ids are anybody's text, so they are kept apart instead of being
# joined into one name.
Subject = tuple[str, ...]
DISCOVERY: Subject = ("discovery",)
MEMBERS: Subject = ("members",)


class FailureLog:
    """Logs a failure when it begins or changes, and when it ends; for any thread."""

    def __init__(self) -> None:
        self._reasons: dict[Subject, str] = {}
        self._lock = threading.Lock()

    @property
    def reasons(self) -> dict[Subject, str]:
        """Return what fails now, and why."""
        with self._lock:
            return {subject: reason for subject, reason in self._reasons.items() if reason}

    @property
    def of_a_job(self) -> bool:
        """Whether a job cannot be read or evaluated now."""
        return any(subject[0] == "job" and len(subject) == 2 for subject in self.reasons)

    def report(self, subject: Subject, error: Exception | None) -> None:
        """Take in how it stands with something, and log it if that is new."""
        reason = "" if error is None else getattr(error, "reason", type(error).__name__)
        with self._lock:
            before = self._reasons.get(subject, "")
            if reason == before:
                return
            self._reasons[subject] = reason
        what = "/".join(subject[1:] or subject)
        if isinstance(error, ThrottledError) or (error is None and before == "throttled"):
            # The reader logs once that the server throttles; every job and metric has to wait.
            logger.debug("throttled what=%s ends=%s", what, error is None)
        elif error is None:
            logger.info("recovered what=%s", what)
        else:
            bug = error if not isinstance(error, PeerwatchError) else None
            logger.warning("failed what=%s reason=%s error=%s", what, reason, error, exc_info=bug)

    def forget_job(self, job_id: str) -> None:
        """Forget all about a job that is gone."""
        with self._lock:
            for subject in [known for known in self._reasons if known[:2] == ("job", job_id)]:
                del self._reasons[subject]


def log_changes(
    before: Mapping[str, Finding], after: Mapping[str, Finding], why: Mapping[Finding, Explanation]
) -> None:
    """Log the findings that are new, and those that have fallen.

    Parameters
    ----------
    before, after
        The findings of a job by node.
    why
        What speaks for those that stand.
    """
    for finding in after.values():
        if before.get(finding.node) != finding:
            logger.warning(
                "finding_raised job_id=%s node=%s gpu=%s metric=%s method=%s score=%.2f since=%.0f "
                "family=%s why=%r",
                finding.job_id,
                finding.node,
                finding.gpu,
                finding.metric,
                finding.method,
                finding.score,
                finding.since,
                why[finding].meaning.family,
                why[finding].sentence,
            )
    for node, finding in before.items():
        if node not in after:
            logger.info(
                "finding_cleared job_id=%s node=%s metric=%s", finding.job_id, node, finding.metric
            )
