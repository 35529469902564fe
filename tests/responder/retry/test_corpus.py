"""The corpus is as large as it says, labelled the same everywhere, and of no particular machine."""

import json
import re
from collections import Counter

import pytest

from peerwatch_responder.retry.corpus.labels import labels_of_mechanisms
from peerwatch_responder.retry.corpus.read import read_files, shipped
from peerwatch_responder.retry.corpus.text import CorpusError
from peerwatch_responder.retry.training.examples import prepare_texts

TEXTS = shipped()


def test_it_has_enough_texts_of_each_kind():
    assert len({text.text for text in TEXTS}) == len(TEXTS) >= 250
    assert sum(not text.deterministic for text in TEXTS) >= 80
    assert sum(text.origin == "real" for text in TEXTS) >= 40


def test_texts_differ_in_words_and_not_only_in_numbers():
    words = Counter(json.dumps(sorted(each.items())) for each in prepare_texts(TEXTS).counts)
    # A segfault that bash reports has the same few words as one that srun reports.
    assert len(words) >= 0.98 * len(TEXTS)


def test_all_texts_of_a_mechanism_have_one_label():
    labels = labels_of_mechanisms()
    assert len(labels) >= 80
    assert all((text.label, text.deterministic) == labels[text.mechanism] for text in TEXTS)
    assert not any(kept and label.startswith("retry") for label, kept in labels.values())


def test_it_names_no_machine():
    places = re.compile(r"(?<!/scratch)/tmp/(?!pip)|/work/|pyenv|/root/(?!\.cache)")
    assert [text.id for text in TEXTS if places.search(text.text)] == []
    assert all(len(text.lines) <= 100 for text in TEXTS)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"label": "perhaps"}, "none of retry"),
        ({"origin": "found"}, "none of written"),
        ({"deterministic": "yes"}, "true or false"),
        ({"text": ""}, "not empty"),
        ({"more": 1}, "exactly the fields"),
    ],
)
def test_a_line_that_is_no_text_is_refused_with_its_place(tmp_path, change, why):
    row = {
        "id": "a/b",
        "mechanism": "a",
        "source": "b",
        "origin": "user",
        "label": "retry",
        "deterministic": False,
        "text": "error",
    }
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps({**row, "id": "a/c", **change}) + "\n")
    with pytest.raises(CorpusError, match=rf"own.jsonl:2: .*{why}"):
        read_files([path])


def test_what_is_no_json_or_there_twice_is_refused(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text("{\n")
    with pytest.raises(CorpusError, match="is no JSON"):
        read_files([path])
    line = json.dumps(
        {
            "id": "a/b",
            "mechanism": "a",
            "source": "b",
            "origin": "user",
            "label": "retry",
            "deterministic": False,
            "text": "error",
        }
    )
    path.write_text(f"{line}\n{line}\n")
    with pytest.raises(CorpusError, match="is there twice"):
        read_files([path])
