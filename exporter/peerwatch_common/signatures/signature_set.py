"""All signatures in force: those that ship with Peerwatch, and the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.load import mistakes_of
from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_common.signatures.pattern import PatternError, compiled
from peerwatch_common.signatures.signature import EventClass, Log, Pattern, Signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHIPPED = Path(__file__).parent / "signatures.yaml"
# Chosen: the four names that an event keeps by itself (matcher.py), and as many for its fields.
_MOST_FIELDS = 8
# Chosen: several times the 136 that ship.
_MOST_SIGNATURES = 1000

_Id = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
_Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]
_Patterns = Annotated[list[str], Field(min_length=1, max_length=20)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)

    event_class: Literal["H", "N", "D", "S", "U", "P", "X"] = Field(alias="class")
    pattern: str | _Patterns
    meaning: _Text
    source: _Text = "local"
    cascade: bool = False
    exception: bool = False
    log: Log | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    signatures: dict[_Id, _Entry] = Field(default_factory=dict, max_length=_MOST_SIGNATURES)
    disabled: list[_Id] = Field(default_factory=list, max_length=_MOST_SIGNATURES)


@dataclass(frozen=True, slots=True)
class SignatureSet:
    """Signatures in the order in which a line is compared with them: the first that matches counts.

    Attributes
    ----------
    signatures
        The user's own first, then those that ship; special ones before general ones.
    """

    signatures: tuple[Signature, ...]

    def of_log(self, log: Log) -> SignatureSet:
        """Return those that can stand in a log of this kind."""
        return SignatureSet(tuple(each for each in self.signatures if each.log in {None, log}))

    def __getitem__(self, signature_id: str) -> Signature:
        """Return the signature of an id; KeyError if there is none."""
        for signature in self.signatures:
            if signature.id == signature_id:
                return signature
        raise KeyError(signature_id)


def load_signatures(paths: Sequence[Path] = ()) -> SignatureSet:
    """Return the signatures that ship with Peerwatch, merged with the user's.

    Parameters
    ----------
    paths
        The user's own files, in the same format. Signatures of an earlier file come first.

    Raises
    ------
    ConfigError
        With every mistake in the files: what cannot be read, unknown keys and classes, ids that
        stand twice, expressions that cannot be used.
    """
    mistakes: list[str] = []
    files = [(path, _read(path, mistakes)) for path in (*paths, SHIPPED)]
    _check_disabled(files, mistakes)
    disabled = {name for _, file in files for name in file.disabled}
    found: dict[str, Signature] = {}
    origin: dict[str, Path] = {}
    for path, file in files:
        for name, entry in file.signatures.items():
            if path == SHIPPED and name in disabled:
                continue
            if name in found:
                mine, other = (origin[name], path)
                hint = "; list it under `disabled` to replace it" if other == SHIPPED else ""
                mistakes.append(f"{mine}: signatures.{name}: stands in {other} too{hint}")
                continue
            origin[name] = path
            found[name] = _signature(name, entry, path, mistakes)
    if mistakes:
        raise ConfigError(mistakes)
    return SignatureSet(tuple(found.values()))


def _read(path: Path, mistakes: list[str]) -> _File:
    try:
        return _File.model_validate(read_yaml(path, is_shipped=path == SHIPPED))
    except ConfigError as error:
        mistakes += error.mistakes
    except ValidationError as error:
        mistakes += [f"{path}: {mistake}" for mistake in mistakes_of(error, _File)]
    return _File()


def _check_disabled(files: Iterable[tuple[Path, _File]], mistakes: list[str]) -> None:
    shipped = next((file.signatures for path, file in files if path == SHIPPED), {})
    for path, file in files:
        mistakes += [
            f"{path}: disabled: no signature {name!r} ships with Peerwatch"
            for name in file.disabled
            if name not in shipped
        ]


def _signature(name: str, entry: _Entry, path: Path, mistakes: list[str]) -> Signature:
    texts = [entry.pattern] if isinstance(entry.pattern, str) else entry.pattern
    patterns: list[Pattern] = []
    for text in texts:
        try:
            patterns.append(_pattern(text, entry, is_shipped=path == SHIPPED))
        except PatternError as error:
            mistakes.append(f"{path}: signatures.{name}.pattern: {text!r} {error}")
    return Signature(
        id=name,
        event_class=EventClass(entry.event_class),
        patterns=tuple(patterns),
        meaning=entry.meaning,
        source=entry.source,
        cascade=entry.cascade,
        exception=entry.exception,
        log=entry.log,
    )


def _pattern(text: str, entry: _Entry, *, is_shipped: bool = False) -> Pattern:
    # The last line of a traceback is found by the traceback, not by a text in it.
    pattern = compiled(text, needs_literal=not entry.exception, is_shipped=is_shipped)
    if is_shipped:
        return pattern
    groups: dict[str, Any] = dict(pattern.expression.groupindex)
    if len(groups) > _MOST_FIELDS:
        raise PatternError(f"has {len(groups)} named groups, more than {_MOST_FIELDS}")
    return pattern
