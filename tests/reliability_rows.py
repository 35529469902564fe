"""Rows of a scheduler in a line each."""

from __future__ import annotations

from peerwatch_reliability.records import JobRow

T0 = 1_700_000_000.0


def row(job_id="1", order=1, state="completed", submit=0.0, start=0.0, end=3600.0, **other):
    """Return a row whose times are seconds since T0."""

    def at(seconds):
        return None if seconds is None else T0 + seconds

    values = {"user": "ann", "name": "train", "work_dir": "/home/ann", "nodes": ("n1",), "gpus": 8}
    values |= {"shown_id": job_id, "eligible": None, **other}
    if values["eligible"] is not None:
        values["eligible"] = at(values["eligible"])
    return JobRow(
        job_id=job_id, order=order, state=state,
        submit=at(submit), start=at(start), end=at(end), **values,
    )  # fmt: skip
