"""What collectors raise in place of what they read."""

from __future__ import annotations


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
