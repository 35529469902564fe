"""A test of a whole table: one test for all of its cases, which tells of every case that fails.

Where a case takes less time than pytest and pytest-xdist take for a test (4 ms on two cores), a
thousand parameters are seconds of nothing. So a table of cheap cases is gone through in one test.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]

_LONGEST_NAME = 200


def each_case(names: str, cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Let a test go through all cases, as ``pytest.mark.parametrize`` lets many tests.

    Parameters
    ----------
    names
        Of the test's parameters that a case gives, with commas between; the others are fixtures.
    cases
        A value for each, or ``pytest.param`` with as many. A case that is skipped is left out; all
        may not be.
    """
    fields, table = [name.strip() for name in names.split(",")], list(cases)

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def test_of_all(**fixtures: object) -> None:
            failed, skipped = [], 0
            for case in table:
                values, label = _values_of(case, len(fields))
                try:
                    test(**dict(zip(fields, values, strict=True)), **fixtures)
                except pytest.skip.Exception:
                    skipped += 1
                except Exception as error:
                    failed.append(f"{label}: {error!r}" if not str(error) else f"{label}: {error}")
            assert not failed, f"{len(failed)} of {len(table)} cases\n" + "\n".join(failed)
            assert skipped < len(table), "no case is left"

        signature = inspect.signature(test)
        given = [
            parameter for name, parameter in signature.parameters.items() if name not in fields
        ]
        test_of_all.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
        return test_of_all

    return decorate


def _values_of(case: Any, count: int) -> tuple[tuple[Any, ...], str]:
    """Return the values of a case, and how it is called."""
    if isinstance(case, type(pytest.param())):
        return tuple(case.values), case.id or repr(case.values)[:_LONGEST_NAME]
    return (case if count > 1 else (case,)), repr(case)[:_LONGEST_NAME]
