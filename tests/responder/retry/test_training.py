"""Word vectors, synonyms, augmentation and votes."""

import numpy as np
import pytest

from peerwatch_responder.retry.training.augment import Augmentation, near_words
from peerwatch_responder.retry.training.skipgram import SkipGram, learn_vectors
from peerwatch_responder.retry.training.synonyms import load_synonyms
from peerwatch_responder.retry.training.voting import vote
from peerwatch_responder.retry.training.wordnet import WordNet

LOGS = [[["disk", "full"], ["write", "failed"]], [["peer", "lost"], ["socket", "closed"]]] * 30


def test_words_of_the_same_logs_get_near_vectors():
    vectors = learn_vectors(LOGS, SkipGram(size=8, passes=30))
    assert (vectors.vectors == learn_vectors(LOGS, SkipGram(size=8, passes=30)).vectors).all()
    rows = vectors.rows()
    disk = vectors.vectors[rows["disk"]]
    assert disk @ vectors.vectors[rows["full"]] > disk @ vectors.vectors[rows["peer"]]
    assert set(near_words(vectors).get("disk", ())) <= {"full", "write", "failed"}


def test_a_line_of_unknown_words_says_nothing():
    vectors = learn_vectors(LOGS, SkipGram(size=8, passes=1))
    sequence = vectors.sequence([["disk", "full"], ["strange"]])
    assert np.linalg.norm(sequence[0]) == pytest.approx(1)
    assert not sequence[1].any()
    assert not learn_vectors([], SkipGram()).names


def _wordnet(folder):
    data = b"  1 licence\n"
    offset = len(data)
    data += b"00000012 30 v 03 fail 0 break_down 0 founder(a) 1 000 | not succeed\n"
    for kind in ("verb", "noun", "adj", "adv"):
        (folder / f"data.{kind}").write_bytes(data)
        (folder / f"index.{kind}").write_text("  1 licence\n")
    (folder / "index.verb").write_text(f"  1 licence\nfail v 1 2 @ ~ 1 1 {offset:08d}\n")


def test_wordnet_is_read_as_debian_has_it(tmp_path):
    assert not WordNet(tmp_path).is_installed
    assert load_synonyms(WordNet(tmp_path)) == load_synonyms()
    _wordnet(tmp_path)
    wordnet = WordNet(tmp_path)
    assert wordnet.is_installed
    assert wordnet.synonyms("fail", "verb") == ["founder"]
    assert wordnet.synonyms("train", "verb") == []
    assert load_synonyms(wordnet)["fail"] == ("founder",)
    assert "fail" not in load_synonyms()


def test_copies_have_synonyms_and_near_words_only():
    how = Augmentation({"lost": ("gone",)}, {"peer": ("rank",)}, 0.5, 0.5, 0.1)
    rng = np.random.default_rng(0)
    copies = [how.copy([["peer", "lost", "now"]], rng) for _ in range(200)]
    seen = {word for copy in copies for line in copy for word in line}
    assert seen == {"peer", "rank", "lost", "gone", "now"}
    assert all(line for copy in copies for line in copy)


def test_only_what_all_are_sure_of_is_labelled():
    votes = vote([np.array([0.9, 0.9, 0.1, 0.6, 0.05]), np.array([0.95, 0.3, 0.15, 0.6, 0.1])])
    assert votes.chosen.tolist() == [0, 2, 4]
    assert votes.labels.tolist() == [True, False, False]
