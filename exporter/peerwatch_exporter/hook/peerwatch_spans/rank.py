"""Whether this process is a rank, which one, and what its environment says."""

from __future__ import annotations

import os
import sys

RECORDS_VARIABLE = "PEERWATCH_SPANS_RECORDS"
# 6 MiB: ten minutes at 437 spans a second.
DEFAULT_RECORDS = 262144
FEWEST_RECORDS, _MOST_RECORDS = 4096, 1 << 21
_JOB_VARIABLES = ("PEERWATCH_JOB_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")
_OWNER_VARIABLE = "PEERWATCH_HEARTBEAT_OWNER"


def rank_of_process(*, has_stepped: bool) -> tuple[int, int] | None:
    """Return rank and world size if this process is a rank.

    Parameters
    ----------
    has_stepped
        Whether it trains: without ``torch.distributed``, that tells a rank from its helpers,
        which inherit its environment.
    """
    distributed = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)
    if distributed is not None and is_initialized is not None and is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank = os.environ.get("RANK", "")
    size = os.environ.get("WORLD_SIZE", "")
    owned = os.environ.get(_OWNER_VARIABLE) == str(os.getpid())
    if has_stepped and owned and rank.isascii() and rank.isdigit():
        return int(rank), int(size) if size.isascii() and size.isdigit() else 1
    return None


def job_id() -> str:
    """Return the job id of the environment, empty if it names none."""
    for name in _JOB_VARIABLES:
        value = os.environ.get(name, "").strip()
        # torchrun without a rendezvous id calls every job "none".
        if value and not (name == "TORCHELASTIC_RUN_ID" and value == "none"):
            return value
    return ""


def records_to_keep() -> int:
    """Return how many records the environment wants to be kept: a power of two."""
    text = os.environ.get(RECORDS_VARIABLE, "")
    wanted = int(text) if text.isascii() and text.isdigit() else DEFAULT_RECORDS
    # So that numbers of records may wrap around.
    return 1 << (max(FEWEST_RECORDS, min(wanted, _MOST_RECORDS)).bit_length() - 1)
