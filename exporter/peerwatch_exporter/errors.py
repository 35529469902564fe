"""What collectors raise in place of what they read."""

from __future__ import annotations

import re


class NoData(Exception):  # noqa: N818 - it is an answer, not an error
    """The node has nothing for this collector (no GPU, no NIC): not a failure.

    The message says what was looked for and where; it is logged at debug level.
    """


class PartialData(Exception):  # noqa: N818 - the collector succeeded, as far as it could see
    """Part of the source could not be read; what was yielded before is published.

    Raised after the last family. The collector's success stays 1, and
    ``exporter_collector_error_info`` says which part is missing: by ``error_class``, or by the
    class of the exception this one was raised ``from``.
    """

    error_class: str | None = None


def error_class(error: BaseException) -> str:
    """Return the short word that names an error in ``exporter_collector_error_info``."""
    explicit = getattr(error, "error_class", None)
    if isinstance(explicit, str):
        return explicit
    if isinstance(error, PermissionError):
        return "permission_denied"
    if isinstance(error, OSError):
        return "os_error"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(error).__name__).lower().lstrip("_")
