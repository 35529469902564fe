"""What collectors raise in place of what they read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class NoData(Exception):  # noqa: N818 - it is an answer, not an error
    """The node has nothing for this collector (no GPU, no NIC): not a failure.

    The message says what was looked for and where; it is logged at debug level.
    """


class SourceMissing(NoData):
    """The process was not given what the collector reads (a device, a socket): not a failure.

    The collector's success stays 1, and ``exporter_collector_error_info`` says so: alerts that are
    made of it have no source on this node, whatever the node's hardware.
    """

    error_class = "source_missing"


class PartialData(Exception):  # noqa: N818 - the collector succeeded, as far as it could see
    """Part of the source could not be read; what was yielded before is published.

    Raised after the last family. The collector's success stays 1, and
    ``exporter_collector_error_info`` says which part is missing: by ``error_class``, or by the
    class of the exception this one was raised ``from``.
    """

    error_class: str | None = None


def raise_partial(problems: Sequence[Exception], *, found: bool) -> None:
    """Raise what is to be said of what could not be read; nothing if all could.

    Parameters
    ----------
    problems
        What reading raised.
    found
        Whether there are values to be published in spite of it.

    Raises
    ------
    PartialData
        If some values were found; it has the class of the first problem.
    Exception
        The first problem, if nothing was found.
    """
    if not problems:
        return
    if not found:
        raise problems[0]
    rest = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
    raise PartialData(f"{problems[0]}{rest}") from problems[0]


class MissingValues(PartialData):
    """Some of a collector's values are missing; the others stand."""

    error_class = "missing_values"


class DirectoryNotFoundError(Exception):
    """A directory that the settings name is not there.

    Parameters
    ----------
    setting
        The setting that names it.
    detail
        What is wrong with it, with its path.
    """

    error_class = "directory_not_found"

    def __init__(self, setting: str, detail: str) -> None:
        super().__init__(
            f"{setting}: {detail}. Create the directory, mount it into the exporter's pod, or take "
            "the setting out."
        )


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
