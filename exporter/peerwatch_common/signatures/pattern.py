"""Regular expressions of signatures: what every match contains, and how long one can take.

Python's ``re`` has no time limit and a log may hold anything, so an expression is refused when it
is loaded if it could try too many ways to match.
"""

from __future__ import annotations

import importlib
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from peerwatch_common.signatures.prefilter import reduced
from peerwatch_common.signatures.signature import Pattern, Texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The parser that re itself uses: its tree says what a match must contain. It has no public name.
_parser = importlib.import_module("re._parser")

# What a repeat without an upper limit can repeat: longer lines are cut (matcher.LONGEST_LINE).
_UNLIMITED = 16 * 1024
# From any start, at some ten nanoseconds each: milliseconds.
_MOST_MATCHES = 1_000_000
# Chosen: four times the longest one that ships.
_LONGEST = 1000
# Shorter texts stand in too many lines to select any; counted are what the prefilter keeps.
_SHORTEST_LITERAL = 3
# A record of JSON may have them as \u003c and the like.
_ESCAPED_IN_JSON = frozenset(b'<>&"\\\\')
_ALL = frozenset(range(256))
_CATEGORIES = {
    f"CATEGORY_{name}": frozenset(code for code in _ALL if re.match(form, bytes([code])))
    for name, form in (
        ("DIGIT", rb"\d"),
        ("NOT_DIGIT", rb"\D"),
        ("SPACE", rb"\s"),
        ("NOT_SPACE", rb"\S"),
        ("WORD", rb"\w"),
        ("NOT_WORD", rb"\W"),
    )
}


class PatternError(ValueError):
    """An expression cannot be used; the text says why and what to do."""


def compiled(text: str, *, needs_literal: bool = True, is_shipped: bool = False) -> Pattern:
    """Return an expression that is safe to search for in any line.

    Parameters
    ----------
    text
        The expression, in the syntax of Python's ``re``.
    needs_literal
        Whether lines are selected by a fixed text of it.
    is_shipped
        Whether it is a part of the program, whose tests have shown that it is safe: that is not
        shown again at every start, and it is compiled once it is needed.

    Raises
    ------
    PatternError
        If it is none, is not ASCII, ignores case as a whole, could take too long, or has no fixed
        text of some letters that every match contains.
    """
    if len(text) > _LONGEST:
        raise PatternError(f"has {len(text)} characters, more than {_LONGEST}")
    if not text.isascii():
        raise PatternError("is not ASCII; write other characters as bytes, such as \\xc3\\xa4")
    try:
        tree = _parser.parse(text.encode())
        pattern = Pattern(text, frozenset(_literals(tree)))
        if is_shipped:
            return pattern
        expression = pattern.expression
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"is no regular expression: {error}") from None
    if expression.flags & re.IGNORECASE:
        raise PatternError("ignores case from its start; write [Ee]rror, or (?i:...) for a part")
    matches = _matches(tree, last=True)
    if matches > _MOST_MATCHES:
        raise PatternError(
            f"could try more than {_MOST_MATCHES:,} ways to match at one place of a line; "
            "limit its repeats, such as .{0,200} in place of .*, and do not nest them"
        )
    if needs_literal and min(map(_length, pattern.literals), default=0) < _SHORTEST_LITERAL:
        raise PatternError(
            f"has no fixed text with at least {_SHORTEST_LITERAL} letters other than a, e, i, o, u "
            "that every match contains; lines are selected by it"
        )
    return pattern


def _matches(items: Iterable[Any], *, last: bool = False) -> int:
    """Return an upper bound of how many ways there are to match at one place, capped.

    Parameters
    ----------
    items
        A part of the tree.
    last
        Whether it ends the expression: nothing behind it can fail.
    """
    flat = list(_without_groups(items))
    matches = 1
    for item, following in zip_longest(flat, flat[1:]):
        if _is_definite(item, following, last=last):
            continue
        operator, argument = item
        matches = min(matches * _item_matches(str(operator), argument), _MOST_MATCHES + 1)
    return matches


def _without_groups(items: Iterable[Any]) -> Iterator[Any]:
    """Return the items with those in groups that are not repeated in their place."""
    for operator, argument in items:
        if str(operator) == "SUBPATTERN":
            yield from _without_groups(argument[3])
        else:
            yield operator, argument


def _is_definite(item: Any, following: Any, *, last: bool) -> bool:  # noqa: ANN401 - as above
    r"""Return whether a repeat can end at one place only: before what it cannot repeat.

    Such as ``\d{1,5}>``: trying fewer digits cannot succeed.
    """
    operator, argument = item
    if not str(operator).endswith("_REPEAT"):
        return False
    if following is None:
        return last
    repeated = list(_without_groups(argument[2]))
    if len(repeated) != 1:
        return False
    mine, next_ones = _first_bytes(repeated[0]), _first_bytes(following)
    return mine is not None and next_ones is not None and mine.isdisjoint(next_ones)


def _first_bytes(item: Any) -> frozenset[int] | None:  # noqa: ANN401 - as above
    """Return which bytes an item that matches a single byte can match; None for other items."""
    operator, argument = str(item[0]), item[1]
    if operator == "LITERAL":
        return frozenset({argument})
    if operator == "NOT_LITERAL":
        return _ALL - {argument}
    if operator == "ANY":
        return _ALL - {ord("\n")}
    if operator != "IN":
        return None
    found: set[int] = set()
    for kind, value in argument:
        if str(kind) == "RANGE":
            found.update(range(value[0], value[1] + 1))
        elif str(kind) == "CATEGORY":
            found |= _CATEGORIES[str(value)]
        elif str(kind) == "LITERAL":
            found.add(value)
    negated = str(argument[0][0]) == "NEGATE"
    return _ALL - found if negated else frozenset(found)


def _item_matches(operator: str, argument: Any) -> int:  # noqa: ANN401 - as the parser has it
    if operator == "BRANCH":
        return sum(_matches(branch) for branch in argument[1])
    if operator.endswith("_REPEAT"):
        least, most, inner = argument
        most = min(int(most), _UNLIMITED)
        return _repeat_matches(int(least), most, _matches(inner))
    if operator == "GROUPREF_EXISTS":
        return sum(_matches(branch) for branch in argument[1:] if branch is not None)
    return max((_matches(inner) for inner in _inner(operator, argument)), default=1)


def _repeat_matches(least: int, most: int, each: int) -> int:
    if each == 1:
        return max(most - least + 1, 1)
    total, power = 0, 1
    for count in range(most + 1):
        if count >= least:
            total += power
        power *= each
        if max(total, power) > _MOST_MATCHES:
            return _MOST_MATCHES + 1
    return total


def _inner(operator: str, argument: Any) -> Iterator[Any]:  # noqa: ANN401 - as the parser has it
    """Return the tree below an item that has exactly one."""
    if operator == "SUBPATTERN":
        yield argument[3]
    elif operator == "ATOMIC_GROUP":
        yield argument
    elif operator in {"ASSERT", "ASSERT_NOT"}:
        yield argument[1]


def _literals(items: Iterable[Any]) -> set[Texts]:
    """Return fixed texts, of which every match contains all of one tuple."""
    always: list[bytes] = []
    choices: list[set[Texts]] = []
    run = bytearray()
    for item_operator, argument in items:
        operator = str(item_operator)
        if operator == "LITERAL" and argument not in _ESCAPED_IN_JSON:
            run.append(argument)
            continue
        if operator in {"AT", "ASSERT", "ASSERT_NOT"}:
            # They consume nothing: the texts around them stand side by side.
            continue
        always.append(bytes(run))
        run.clear()
        inner = _item_literals(operator, argument)
        if len(inner) == 1:
            always += next(iter(inner))
        else:
            choices.append(inner)
    texts = tuple(text for text in (*always, bytes(run)) if text)
    if _length(texts) >= _SHORTEST_LITERAL or not choices:
        return {texts}
    # Of those that select lines the fewest: each is searched for.
    best = max(choices, key=lambda choice: (min(map(_length, choice), default=0), -len(choice)))
    return {(*texts, *choice) for choice in best}


def _item_literals(operator: str, argument: Any) -> set[Texts]:  # noqa: ANN401 - as above
    if operator == "BRANCH":
        return set().union(*(_literals(branch) for branch in argument[1]))
    if operator.endswith("_REPEAT"):
        return _literals(argument[2]) if argument[0] else {()}
    if operator == "SUBPATTERN" and argument[1] & re.IGNORECASE:
        return {()}
    return set().union(*(_literals(inner) for inner in _inner(operator, argument))) or {()}


def _length(texts: Texts) -> int:
    """Return what the prefilter keeps of the longest of some texts."""
    return max((len(reduced(text)) for text in texts), default=0)
