"""What each signature advises: what ships, and the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from peerwatch_common.errors import ConfigError
from peerwatch_common.settings.load import mistakes_of
from peerwatch_common.settings.yaml_file import read_yaml
from peerwatch_responder.retry.knowledge.ruling import Entry, Ruling

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

SHIPPED = Path(__file__).parent / "advice.yaml"


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    classes: dict[Literal["H", "N", "D", "S", "U", "P"], Entry] = Field(default_factory=dict)
    signatures: dict[str, Entry] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SignatureAdvice:
    """What signatures advise.

    Parameters
    ----------
    by_class, by_signature
        The rulings; a signature without one of its own has that of its class.
    """

    by_class: Mapping[str, Ruling]
    by_signature: Mapping[str, Ruling]

    def of(self, signature: str, event_class: str) -> Ruling:
        """Return what a signature of a class advises."""
        return self.by_signature.get(signature) or self.by_class[event_class]

    @property
    def weak(self) -> frozenset[str]:
        """The signatures that do not decide by themselves."""
        return frozenset(name for name, ruling in self.by_signature.items() if not ruling.decides)


def load_signature_advice(known: Collection[str], paths: Sequence[Path] = ()) -> SignatureAdvice:
    """Return what ships, and what the user's files say in its place.

    Parameters
    ----------
    known
        The ids of all signatures in force.
    paths
        The user's files; an earlier one counts more.

    Raises
    ------
    ConfigError
        With every mistake in the files.
    """
    mistakes: list[str] = []
    by_class: dict[str, Ruling] = {}
    by_signature: dict[str, Ruling] = {}
    for path in (SHIPPED, *reversed(paths)):
        file = _read(path, mistakes)
        by_class |= {name: entry.ruling() for name, entry in file.classes.items()}
        by_signature |= {name: entry.ruling() for name, entry in file.signatures.items()}
        if path != SHIPPED:
            mistakes += [
                f"{path}: signatures.{name}: there is no such signature"
                for name in file.signatures
                if name not in known
            ]
    if mistakes:
        raise ConfigError(mistakes)
    return SignatureAdvice(by_class, by_signature)


def _read(path: Path, mistakes: list[str]) -> _File:
    try:
        return _File.model_validate(read_yaml(path, is_shipped=path == SHIPPED))
    except ConfigError as error:
        mistakes += error.mistakes
    except ValidationError as error:
        mistakes += [f"{path}: {mistake}" for mistake in mistakes_of(error, _File)]
    return _File()
