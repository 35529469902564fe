"""Takes the sends and receives out of gloo's sequence numbers.

Gloo counts a send or a receive of a rank in the same sequence as the collectives of its group, but
does not record it. The ranks of a pipeline would then number the same all_reduce differently. A
number that is missing between two successive records of the process was such a transfer. Where
records were overwritten before they were read, the missing numbers of all groups together, less the
missing records, are the transfers.
"""

from __future__ import annotations

from collections.abc import Mapping, Set


def transfers_before(
    gaps: Mapping[int, int], missed_records: int, with_transfers: Set[int]
) -> dict[int, int | None]:
    """Return how many of the numbers missing before each group's first new record were transfers.

    Parameters
    ----------
    gaps
        Missing numbers, by group.
    missed_records
        Records of the process that were overwritten before they were read.
    with_transfers
        Groups that are known to have some.

    Returns
    -------
    dict
        By group; None where it cannot be told which of several groups they belong to.
    """
    if missed_records == 0:
        return dict(gaps)
    transfers = sum(gaps.values()) - missed_records
    found: dict[int, int | None] = dict.fromkeys(gaps, 0)
    if transfers <= 0:
        return found
    possible = {group for group, gap in gaps.items() if gap}
    suspects = possible & with_transfers or possible
    for group in suspects:
        found[group] = min(transfers, gaps[group]) if len(suspects) == 1 else None
    return found
