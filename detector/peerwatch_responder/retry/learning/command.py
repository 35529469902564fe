"""The command ``learn``: reads what there is to learn from, learns, writes, reports."""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from peerwatch_common.command_line import INTERRUPTED
from peerwatch_common.progress import Progress
from peerwatch_responder.retry.corpus.read import read_files, shipped
from peerwatch_responder.retry.learning.evaluate import evaluate
from peerwatch_responder.retry.learning.learn import learn, steps_of
from peerwatch_responder.retry.learning.report import report_of, report_text
from peerwatch_responder.retry.learning.sources import LearnError, corrections, unlabelled_logs
from peerwatch_responder.retry.model.store import arrays_of, digest, save_models
from peerwatch_responder.retry.training.learners import NeuralLearner
from peerwatch_responder.retry.training.settings import FitSettings
from peerwatch_responder.retry.training.skipgram import SkipGram

if TYPE_CHECKING:
    import argparse

    from peerwatch_responder.retry.corpus.text import Text

# Tenfold cross-validation, as is usual.
_GROUPS = 10


def run_learn(options: argparse.Namespace) -> int:
    """Learn or evaluate, and print a report; 130 if it was interrupted.

    Raises
    ------
    PeerwatchError
        If something cannot be read, learnt or written.
    """
    if (options.neural or options.logs) and find_spec("torch") is None:
        raise LearnError("--neural and LOGS need torch: pip install 'peerwatch[train]'.")
    texts = _texts(options)
    learner = _learner(options) if options.neural or options.logs else None
    if options.evaluate:
        return evaluate(options, texts, learner)
    output: Path = options.output
    if output.is_dir() or not output.resolve().parent.is_dir():
        raise LearnError(f"{output}: cannot be written; its folder must exist.")
    logs = unlabelled_logs(options.logs)
    groups = _GROUPS if options.groups is None else options.groups
    kept = output.with_name(f"{output.name}.progress")
    folds = min(groups or len(texts), len({each.mechanism for each in texts}))
    steps = steps_of(folds, len(logs), neural=learner is not None)
    try:
        with Progress(sys.stderr, steps, "step") as progress:
            learnt = learn(texts, logs, learner, groups, kept, progress.advance)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\npeerwatch-responder: interrupted; what is done is in {kept}, the same "
            "command goes on from there.\n"
        )
        return INTERRUPTED
    save_models(output, learnt.linear, learnt.ensemble)
    kept.unlink(missing_ok=True)
    name = digest(arrays_of(learnt.linear, learnt.ensemble))
    report = report_of(texts, learnt, len(logs), output, name)
    text = json.dumps(report) + "\n" if options.json else report_text(report)
    sys.stdout.write(text)
    return 0


def _texts(options: argparse.Namespace) -> list[Text]:
    texts = shipped() + read_files(options.labelled)
    if options.history is not None:
        texts += corrections(options.history)
    names = [each.id for each in texts]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise LearnError(f"--labelled: id {twice[0]!r} is in the corpus already; rename it.")
    if not np.unique([each.retry for each in texts]).size == 2:
        raise LearnError("All texts have the same label: there is nothing to learn.")
    return texts


def _learner(options: argparse.Namespace) -> NeuralLearner:
    fit = FitSettings(
        seed=options.seed, **({} if options.passes is None else {"passes": options.passes})
    )
    return NeuralLearner(fit, skipgram=SkipGram(seed=options.seed))
