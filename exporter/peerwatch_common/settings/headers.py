"""HTTP headers of the settings: what cannot be sent is refused where it is read."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

# RFC 9110: a token, and a field value.
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")


def check_headers(headers: dict[str, str]) -> dict[str, str]:
    """Return headers as they are.

    Raises
    ------
    ValueError
        If one of them cannot be sent.
    """
    wrong = [f"{name!r} is no name of a header" for name in headers if not _NAME.match(name)]
    # Of a value only its header is told: it may be a password.
    wrong += [
        f"the value of {name!r} must be one line of Latin-1"
        for name, value in headers.items()
        if not _VALUE.match(value)
    ]
    if wrong:
        raise ValueError("; ".join(wrong))
    return headers


Headers = Annotated[dict[str, str], AfterValidator(check_headers)]
