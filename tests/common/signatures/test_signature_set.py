"""A user's signatures come first, and every mistake in their files is reported at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerwatch_common.errors import ConfigError
from peerwatch_common.signatures.matcher import LogMatcher, MatchTable
from peerwatch_common.signatures.signature_set import load_signatures

OWN = """
signatures:
  fabric_lost:
    class: N
    pattern: 'myfabric: lost node (?P<peer_address>[\\w.-]{1,60}) by rank (?P<rank>\\d{1,6})'
    meaning: the fabric lost a node
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_signature_is_matched(tmp_path: Path) -> None:
    signatures = load_signatures([write(tmp_path / "own.yaml", OWN)])
    assert signatures.signatures[0].id == "fabric_lost"
    line = b"myfabric: lost node gpu-7 by rank 12: CUDA error: device-side assert triggered\n"
    (event,) = LogMatcher(MatchTable(signatures)).feed(line)
    assert (event.signature.id, event.rank, event.peer_address) == ("fabric_lost", 12, "gpu-7")
    assert event.signature.source == "local"


def test_what_ships_can_be_replaced(tmp_path: Path) -> None:
    own = OWN.replace("fabric_lost", "storage_full") + "disabled: [storage_full, hint]\n"
    signatures = load_signatures([write(tmp_path / "own.yaml", own)])
    assert signatures["storage_full"].event_class == "N"
    with pytest.raises(KeyError):
        signatures["hint"]


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    first = write(
        tmp_path / "first.yaml",
        """
signatures:
  bad_class: {class: Z, pattern: 'some text', meaning: x}
  Bad-Id: {class: H, pattern: 'some text', meaning: x}
  unknown_key: {class: H, patern: 'some text', meaning: x}
""",
    )
    second = write(
        tmp_path / "second.yaml",
        """
signatures:
  storage_full: {class: S, pattern: 'disk is full', meaning: x}
  broken: {class: H, pattern: 'some (text', meaning: x}
  slow: {class: H, pattern: 'text (a+)+b', meaning: x}
  endless: {class: H, pattern: 'text .*from.*to.*', meaning: x}
  no_text: {class: H, pattern: '\\d+ a', meaning: x}
  any_case: {class: H, pattern: '(?i)some text', meaning: x}
  not_ascii: {class: H, pattern: 'großer Text', meaning: x}
disabled: [no_such]
""",
    )
    absent = tmp_path / "absent.yaml"
    with pytest.raises(ConfigError) as caught:
        load_signatures([first, second, absent])
    text = "\n".join(caught.value.mistakes)
    for part in (
        "first.yaml: signatures.bad_class.class: ",
        "first.yaml: signatures.Bad-Id",
        "first.yaml: signatures.unknown_key.patern: unknown key",
        "second.yaml: signatures.storage_full: stands in",
        "list it under `disabled` to replace it",
        "second.yaml: signatures.broken.pattern: 'some (text' is no regular expression",
        "second.yaml: signatures.slow.pattern: 'text (a+)+b' could try more than 1,000,000 ways",
        "second.yaml: signatures.endless.pattern: ",
        "second.yaml: signatures.no_text.pattern: ",
        "second.yaml: signatures.any_case.pattern: ",
        "second.yaml: signatures.not_ascii.pattern: ",
        "second.yaml: disabled: no signature 'no_such'",
        "absent.yaml: cannot be read",
    ):
        assert part in text


def test_a_signature_stands_once_in_a_users_files(tmp_path: Path) -> None:
    files = [write(tmp_path / name, OWN) for name in ("a.yaml", "b.yaml")]
    with pytest.raises(ConfigError, match=r"a\.yaml: signatures\.fabric_lost: stands in .*b\.yaml"):
        load_signatures(files)
