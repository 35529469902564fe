"""What a person does to search a log for known errors: ``grep -E -f`` with the same expressions.

Some have parts that grep does not know, such as ``\\d`` within brackets: it searches all the same,
and may find less. A loop in Python over lines and expressions takes some eight times as long.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from peerwatch_common.signatures.signature_set import load_signatures

if TYPE_CHECKING:
    from pathlib import Path

GREP = "grep -E -f, the same expressions"


def patterns() -> list[str]:
    """Return the expressions of all signatures of jobs' logs, without names of groups."""
    return [
        re.sub(r"\(\?P<\w+>", "(?:", pattern.expression.pattern.decode()).replace("(?:", "(")
        for signature in load_signatures().of_log("job").signatures
        for pattern in signature.patterns
    ]


def grep(folder: Path, log: Path) -> list[str]:
    """Return the command that prints the lines of a log that match; its exit status is 0 or 1."""
    file = folder / "patterns"
    file.write_text("\n".join(patterns()) + "\n")
    return ["env", "LC_ALL=C", "grep", "-a", "-n", "-E", "-f", str(file), str(log)]
