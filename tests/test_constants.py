"""Tuned constants say where their value comes from: each number of a module has a comment."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A unit is its own reason.
_UNITS = {1, 60, 1000, 3600, 86_400, 7 * 86_400, 1024, 1_000_000, 1_000_000_000, 2**20, 2**30}
_NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")


def _number(node: ast.expr) -> float | None:
    """Return the number that an expression of literals makes; None if it makes none."""
    if any(not isinstance(each, _OF_NUMBERS) for each in ast.walk(node)):
        return None
    literals = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    if not literals or any(isinstance(each, bool | str | bytes | None) for each in literals):
        return None
    value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})
    return value if isinstance(value, int | float) else float("nan")


_OF_NUMBERS = (
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.Tuple,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
)


def _without_comment(text: str) -> Iterator[str]:
    """Yield a module's numbers that have no comment, neither above their block nor behind."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if not _NAME.fullmatch(name) or (number := _number(value)) is None or number in _UNITS:
            continue
        first = node.lineno - 1
        while first > 0 and re.match(r"_?[A-Z][A-Z0-9_, ]*(:.*)? = ", lines[first - 1]):
            first -= 1
        above = first > 0 and lines[first - 1].startswith("#")
        if not above and "#" not in "".join(lines[node.lineno - 1 : node.end_lineno]):
            yield f"{node.lineno}: {lines[node.lineno - 1]}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("_MOST = 5", ["1: _MOST = 5"]),
        ("# Chosen: so many fit a line.\n_MOST = 5", []),
        ("_MOST = 5  # chosen: so many fit a line", []),
        ("# What a server sends at most.\n_MOST = 5\n_FEWEST: float = -2.5\n", []),
        ("# What a server sends at most.\n\n_MOST = 5 * 2\n", ["3: _MOST = 5 * 2"]),
        ("_SHARES = (0.1, 0.5)", ["1: _SHARES = (0.1, 0.5)"]),
        ("_DAY = 86400.0\n_MIB = 1 << 20\n_NAME = 'a'\n_OFF = False\n_SIX = other * 2", []),
    ],
)
def test_a_number_without_a_comment_is_found(text: str, found: list[str]) -> None:
    assert found == list(_without_comment(text))


@pytest.mark.parametrize(
    "package",
    [path.parent for top in ("exporter", "detector") for path in ROOT.glob(f"{top}/*/__init__.py")],
    ids=lambda path: path.name,
)
def test_numbers_of_modules_say_where_they_come_from(package: Path) -> None:
    assert [] == [
        f"{path.relative_to(ROOT)}:{found}"
        for path in sorted(package.rglob("*.py"))
        for found in _without_comment(path.read_text())
    ]
