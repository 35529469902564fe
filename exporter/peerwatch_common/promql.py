"""Texts of PromQL that every program's queries are made of, and what answers warn of."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# What is odd in a query; and, behind the first ten, how many of those are left out (AsStrings in
# util/annotations/annotations.go of Prometheus, and in 2.48 to 2.x without "warning").
_OF_THE_QUERY = re.compile(
    r"PromQL (?:warning|info)|\d+ more (?:warning |info )?annotations omitted\Z"
)


def selected(name: str, selector: str, *more: str, **labels: str) -> str:
    """Return a selector of series.

    Parameters
    ----------
    name
        Name of the metric.
    selector
        Matchers of the user's, without braces; empty: none.
    more
        Matchers besides, as PromQL writes them; empty ones are left out.
    labels
        What labels must be.
    """
    equal = [f"{label}={quoted(value)}" for label, value in labels.items()]
    return f"{name}{{{','.join(filter(None, [selector, *more, *equal]))}}}"


def quoted(text: str) -> str:
    """Return a text as a string of PromQL, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)


def any_of(label: str, values: Iterable[str]) -> str:
    """Return the matcher that lets a label be one of some values."""
    return f"{label}=~{quoted('|'.join(map(re.escape, values)))}"


def missing_parts(warnings: Iterable[str]) -> list[str]:
    """Return the warnings beside an answer that say it is not whole, as Thanos' do.

    Prometheus itself warns of what is odd in a query ("PromQL warning", and before 3.0 "PromQL
    info"), and nothing is missing then; nor where it tells how many of those it left out.
    """
    return [text for text in warnings if not _OF_THE_QUERY.match(text)]


def in_one(label: str, queries: Mapping[str, str]) -> str:
    """Return one query for several.

    Parameters
    ----------
    label
        It says which query a series of the answer is of.
    queries
        By what it says.
    """
    return " or ".join(
        f'label_replace({query}, "{label}", "{name}", "", "")' for name, query in queries.items()
    )
