"""Of what a job failed: the strongest that its logs and its scheduler say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from peerwatch_common.signatures.redact import redacted
from peerwatch_responder.retry.answer import Line
from peerwatch_responder.retry.evidence.fingerprint import fingerprint
from peerwatch_responder.retry.evidence.occurrence import Occurrence
from peerwatch_responder.retry.evidence.root import complained_about, find_root, first_cascade
from peerwatch_responder.retry.knowledge.forms import form_of
from peerwatch_responder.retry.knowledge.ruling import Ruling

if TYPE_CHECKING:
    from peerwatch_responder.retry.assessment.knowledge import Knowledge
    from peerwatch_responder.retry.evidence.observed import Observed
    from peerwatch_responder.retry.knowledge.exits import Exit
    from peerwatch_responder.retry.reading.facts import JobFacts

# Editorial: less than what is known at its weakest (0.35, exits.py).
_UNKNOWN_CONFIDENCE = 0.3
# Other languages use the same words for other things. Editorial: just below one half, a guess.
_FOREIGN_CONFIDENCE = 0.45
_TIMES = ("TIMEOUT", "DEADLINE")


@dataclass(frozen=True, slots=True)
class Cause:
    """Of what a job failed.

    Parameters
    ----------
    source
        ``signature``, ``exit``, ``form`` or ``unknown``.
    occurrence
        The line; what a scheduler says is one too.
    line
        The same, to be quoted.
    meaning
        What happened, in a few words.
    ruling
        What is advised about it.
    isolate
        Whom the next attempt should do without.
    """

    source: str
    occurrence: Occurrence
    line: Line
    meaning: str
    ruling: Ruling
    isolate: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """What it has in common over attempts."""
        return fingerprint(self.occurrence)


def find_cause(observed: Observed, facts: JobFacts, knowledge: Knowledge) -> Cause | None:
    """Return the cause; None: nothing has failed, as far as is said."""
    root = find_root(observed.occurrences, knowledge.advice.weak | _symptoms(observed, knowledge))
    known = None if root is None else _of_signature(root, observed, knowledge)
    stated = _stated(facts, knowledge)
    if known is not None and facts.state.startswith(_TIMES):
        # A job that hangs is ended by its time limit; the limit is not why it hung.
        stated = None
    text = _of_text(observed, known, knowledge)
    code = _of_code(facts, observed, knowledge)
    deciding = (known, stated, text, code if known is None else None)
    for each in deciding:
        if each is not None and each.ruling.decides:
            return each
    form = _of_form(observed, known, knowledge)
    if form is not None:
        return form
    silent = _failed_silently(facts, knowledge) if facts.failed else None
    weak = (known, text, *_untold(observed, knowledge), stated, code, silent)
    return next((each for each in weak if each is not None), None)


def quoted(occurrence: Occurrence, observed: Observed) -> Line:
    """Return a line of a log as it is quoted."""
    return Line(
        observed.logs[occurrence.log].name,
        occurrence.number,
        redacted(occurrence.text),
        occurrence.rank,
        occurrence.node,
    )


def _symptoms(observed: Observed, knowledge: Knowledge) -> frozenset[str]:
    return frozenset(
        each.signature
        for each in observed.occurrences
        if not knowledge.advice.of(each.signature, each.event_class).decides
    )


def _of_signature(root: Occurrence, observed: Observed, knowledge: Knowledge) -> Cause:
    meaning, ruling = root.meaning, knowledge.advice.of(root.signature, root.event_class)
    said = knowledge.exits.of_reason(root.fields.get("reason", ""))
    if root.signature == "kubernetes_pod" and said is not None:
        meaning, ruling = said.meaning, said.ruling
    isolate: tuple[str, ...] = ()
    if ruling.kind == "retry_elsewhere":
        # A path has two ends: who says so is one, and whom it says it of is the other.
        peer = root.peer or complained_about(observed.occurrences)
        whom = peer if root.event_class == "N" and peer else root.node
        isolate = tuple(filter(None, [whom or _rank(root)]))
    return Cause("signature", root, quoted(root, observed), meaning, ruling, isolate)


def _of_text(observed: Observed, known: Cause | None, knowledge: Knowledge) -> Cause | None:
    """Return the exit that the line of the failure speaks of; None: it speaks of none."""
    lines = list(observed.unknown)
    if known is not None and known.occurrence.event_class != "D":
        lines.append(known.occurrence)
    for each in lines:
        found = knowledge.exits.in_text(each.text)
        if found is not None:
            exit_ = found[0]
            return Cause("exit", each, quoted(each, observed), exit_.meaning, exit_.ruling)
    return None


def _of_form(observed: Observed, known: Cause | None, knowledge: Knowledge) -> Cause | None:
    """Return what the form of the earliest line says that has one; None: none has."""
    lines = list(observed.failing)
    if known is not None and known.occurrence.event_class == "D":
        # What a rank says after a symptom follows from it; of other logs the order is unknown.
        symptom = known.occurrence
        lines = [each for each in lines if each.log == symptom.log and each.offset < symptom.offset]
    elif known is not None:
        lines.insert(0, known.occurrence)
    for each in lines:
        form = form_of(each.text, knowledge.forms)
        if form is not None:
            occurrence = replace(each, signature=each.signature or form.name)
            sure = form.ruling.confidence
            if "language" in each.fields:
                sure = min(sure, _FOREIGN_CONFIDENCE)
            ruling = replace(form.ruling, confidence=sure)
            return Cause("form", occurrence, quoted(each, observed), form.meaning, ruling)
    return None


def _untold(observed: Observed, knowledge: Knowledge) -> list[Cause]:
    """Return what may stand for a root that no log tells, the likeliest first."""
    found = []
    follows = first_cascade(observed.occurrences)
    if follows is not None:
        found.append(_of_signature(follows, observed, knowledge))
    if observed.unknown:
        line = observed.unknown[-1]
        ruling = Ruling("retry", _UNKNOWN_CONFIDENCE, knowledge.max_retries, decides=False)
        unknown = Cause("unknown", line, quoted(line, observed), line.meaning, ruling)
        # What came before a launcher's word about the end is rather its reason.
        is_first = follows is not None and (line.log, line.offset) < (follows.log, follows.offset)
        is_same = follows is not None and follows.text.strip() in line.text
        found.insert(0 if is_first and not is_same else len(found), unknown)
    return found


def _stated(facts: JobFacts, knowledge: Knowledge) -> Cause | None:
    exits = knowledge.exits
    found = exits.of_state(facts.state)
    if found is None and facts.reason:
        found = exits.of_reason(facts.reason, facts.message)
    return None if found is None else _of_scheduler(found, facts)


def _of_code(facts: JobFacts, observed: Observed, knowledge: Knowledge) -> Cause | None:
    code = facts.exit_code
    if code is None:
        return _of_first_exit(observed, knowledge)
    found = knowledge.exits.of_code(code) if code else None
    return None if found is None else _of_scheduler(found, facts)


def _of_first_exit(observed: Observed, knowledge: Knowledge) -> Cause | None:
    """Return the exit of the rank that torchrun saw end first; None: it says of none."""
    for each in observed.occurrences:
        code = each.fields.get("exit_code", "")
        if each.signature == "elastic_root_cause" and code.lstrip("-").isdecimal():
            found = knowledge.exits.of_code(int(code)) if int(code) else None
            if found is not None:
                line = quoted(each, observed)
                return Cause("exit", each, line, found.meaning, found.ruling)
    return None


def _of_scheduler(exit_: Exit, facts: JobFacts) -> Cause:
    line = _line_of(facts)
    occurrence = Occurrence(exit_.name, "P", exit_.meaning, line.text.encode(), -1, 0)
    isolate = (
        facts.nodes if exit_.ruling.kind == "retry_elsewhere" and len(facts.nodes) == 1 else ()
    )
    return Cause("exit", occurrence, line, exit_.meaning, exit_.ruling, isolate)


def _failed_silently(facts: JobFacts, knowledge: Knowledge) -> Cause:
    line = _line_of(facts)
    ruling = Ruling("retry", _UNKNOWN_CONFIDENCE, knowledge.max_retries, decides=False)
    occurrence = Occurrence("", "", "", line.text.encode(), -1, 0)
    return Cause("unknown", occurrence, line, "the job failed and its logs do not say why", ruling)


def _line_of(facts: JobFacts) -> Line:
    said = [f"state {facts.state}"] if facts.state else []
    said += [] if facts.exit_code is None else [f"exit code {facts.exit_code}"]
    said += [f"reason {facts.reason} {facts.message}".strip()] if facts.reason else []
    text = facts.text or ", ".join(said)
    node = facts.nodes[0] if len(facts.nodes) == 1 else ""
    return Line(facts.source or "the scheduler", None, redacted(text.encode()), None, node)


def _rank(root: Occurrence) -> str:
    return "" if root.rank is None else f"rank {root.rank}"
