"""Advises on texts as `advise` does, without files."""

from peerwatch_responder.retry.assessment.assess import Sources, assess
from peerwatch_responder.retry.assessment.knowledge import load_knowledge
from peerwatch_responder.retry.evidence.observed import observe
from peerwatch_responder.retry.history.recurrence import Recurrence
from peerwatch_responder.retry.reading.facts import JobFacts
from peerwatch_responder.retry.reading.log_text import LogText

KNOWLEDGE = load_knowledge()
NOW = 1_800_000_000.0


def observed(*texts, job_id=""):
    logs = [
        text if isinstance(text, LogText) else LogText(f"log-{number}", text.encode())
        for number, text in enumerate(texts)
    ]
    return observe(logs, KNOWLEDGE.table, job_id, lambda: NOW)


def advised(*texts, past=None, diagnosis=None, model=None, job_id="", **facts):
    sources = Sources(lambda _root, _step: past or Recurrence(), lambda: diagnosis, model)
    known = JobFacts(job_id=job_id, **facts)
    return assess(observed(*texts, job_id=job_id), known, KNOWLEDGE, sources)


def traceback(last, prefix=""):
    lines = ("Traceback (most recent call last):", '  File "train.py", line 7, in main', last)
    return "".join(f"{prefix}{line}\n" for line in lines)
