"""What is known about the SXIDs, the numbers with which an NVSwitch reports errors.

The log line says whether an error was fatal; the table adds what it was and what a person does.
Classes are those of ``xid_codes``. A potentially fatal code is ``degraded``: where it hits
a GPU's port, that GPU logs XID 74 as well, and that one is ``hardware``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from peerwatch_exporter.catalog.xid_codes import Severity


@dataclass(frozen=True, slots=True)
class Sxid:
    """What is known about one code: its number, what it means, its class, what a person does."""

    code: int
    meaning: str
    severity: Severity
    advice: str


_ADVICE: Mapping[Severity, str] = MappingProxyType(
    {
        "hardware": "Drain all nodes of this NVSwitch fabric now and restart them.",
        "degraded": "Drain now if a GPU logs XID 74 too, else when the job ends; then reset.",
        "watch": "Nothing at once; drain if it repeats or a GPU logs XID 74.",
        "ignore": "Nothing by itself.",
    }
)
# Class, meaning, codes. A meaning of its own stands only where NVIDIA's guide is known to give one.
_TABLE = """
watch    | single-bit ECC error, corrected   | 11012 11021-11023 12021 12023 15008 15011 19049 19055
watch    | single-bit ECC error, corrected   | 19057 19059 19062 19065 19068 19071 24001-24003
watch    | TX replay                         | 20001
watch    | RX short error rate               | 20009
watch    | broken or inconsistent connection | 20012
watch    | Minion DLREQ interrupt            | 22013
watch    | invalid ACL                       | 11004
watch    | egress nonposted PRIV error       | 12028
watch    | AN1 heartbeat timeout             | 19084
watch    | host priv error                   | 10001
watch    | host priv timeout                 | 10002
watch    | unhandled interrupt               | 10003
watch    | thermal event began               | 10004
ignore   | thermal event ended               | 10005
degraded | potentially fatal port error      | 11001 11009 11013 11018-11020 12001 12002 12022
degraded | potentially fatal port error      | 12024-12027 12030-12032 14017 15001 15006 15009 15010
degraded | potentially fatal port error      | 15012 15013 19047 19048 19054 19056 19058 19060 19061
degraded | potentially fatal port error      | 19063 19064 19066 19067 19069 19070 22012 24004-24007
degraded | LTSSM fault up: a link went down  | 20034
hardware | fatal to the fabric               | 12020 22011 23001-23017
hardware | fatal to the fabric: Minion halt  | 22003
"""


def _codes(text: str) -> Iterator[int]:
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        yield from range(int(first), int(last or first) + 1)


def _parse(table: str) -> Mapping[int, Sxid]:
    sxids = {}
    for line in filter(None, table.split("\n")):
        word, meaning, codes = (cell.strip() for cell in line.split("|"))
        severity = cast("Severity", word)
        for code in _codes(codes):
            if code in sxids:
                raise ValueError(f"SXID {code} stands in the table twice.")
            sxids[code] = Sxid(code, meaning, severity, _ADVICE[severity])
    return MappingProxyType(sxids)


SXIDS: Mapping[int, Sxid] = _parse(_TABLE)


def describe(code: int) -> Sxid:
    """Return what is known about a code; one that is not in the table is one to watch."""
    return SXIDS.get(code) or Sxid(code, "unknown", "watch", _ADVICE["watch"])
