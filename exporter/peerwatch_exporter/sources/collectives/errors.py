"""What goes wrong with a source of collectives; it costs that source, of that rank, alone."""

from __future__ import annotations


class CollectiveSourceError(Exception):
    """A source did not answer, or not with what it should.

    Parameters
    ----------
    error_class
        The word for ``exporter_collector_error_info``.
    detail
        What is wrong, and what to do.
    """

    def __init__(self, error_class: str, detail: str) -> None:
        super().__init__(detail)
        self.error_class = error_class
