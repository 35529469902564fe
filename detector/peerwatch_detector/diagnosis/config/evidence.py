"""What differs in the configuration, as evidence for the root diagnosis."""

from __future__ import annotations

from peerwatch_detector.diagnosis.config.watch import ConfigState
from peerwatch_detector.diagnosis.root.evidence.evidence import Evidence, in_order


def evidence_of(state: ConfigState, job_id: str) -> tuple[Evidence, ...]:
    """Return each difference and each change as an observation, in order of time.

    A minority is as old as the reading, for nobody saw it begin; a change has its own time.
    """
    differs = [
        Evidence(
            time=state.time,
            kind="config",
            name=each.key,
            node=each.node,
            class_name="minority",
            job_id=job_id,
            text=f"{each.value!r} on {each.nodes} of {each.of_nodes} nodes, "
            f"{each.majority!r} on most",
        )
        for each in state.minorities
    ]
    changed = [
        Evidence(
            time=each.time,
            kind="config",
            name=each.key,
            node=each.node,
            class_name="drift",
            job_id=job_id,
            text=f"changed from {each.before!r} to {each.after!r}",
        )
        for each in state.changes
    ]
    return in_order([*changed, *differs])
