"""What ``learn`` says about what it has learnt."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from peerwatch_responder.retry.evaluation.table import answers_of, as_json, row_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from peerwatch_responder.retry.corpus.text import Text
    from peerwatch_responder.retry.learning.learn import Learnt


def report_of(
    texts: Sequence[Text], learnt: Learnt, logs: int, output: Path, digest: str
) -> dict[str, Any]:
    """Return the report as plain values."""
    truths = np.array([each.retry for each in texts])
    mechanisms = [each.mechanism for each in texts]
    answers = answers_of(learnt.scored, truths)
    return {
        "output": str(output),
        "digest": digest,
        "texts": len(texts),
        "mechanisms": len(set(mechanisms)),
        "labels": dict(sorted(Counter(each.label for each in texts).items())),
        "corrections": sum(each.origin == "user" for each in texts),
        "logs_without_label": logs,
        "voted": {"retry": learnt.voted[True], "do_not_retry": learnt.voted[False]},
        "left_out_in": len(learnt.scored.folds),
        "measures": as_json(
            {name: row_of(each, truths, mechanisms) for name, each in answers.items()}
        ),
    }


def report_text(report: dict[str, Any]) -> str:
    """Return the report for a person."""
    lines = [
        f"{report['texts']} labelled texts of {report['mechanisms']} mechanisms, "
        f"{report['corrections']} of them corrections or of this site.",
        f"{report['logs_without_label']} logs without a label; the vote labelled "
        f"{report['voted']['retry']} as worth another attempt and "
        f"{report['voted']['do_not_retry']} as not.",
        f"Without having seen the mechanism (left out in {report['left_out_in']} groups):",
    ]
    for name, row in report["measures"].items():
        f1 = row["f1"]
        lines.append(
            f"  {name:<40} macro-F1 {f1['value']:.3f} ({f1['low']:.3f}-{f1['high']:.3f}), "
            f"false stop {100 * row['false_stop']:.1f} %, "
            f"false retry {100 * row['false_retry']:.1f} %"
        )
    lines.append(f"Models written to {report['output']} (digest {report['digest']}).")
    return "\n".join([*lines, ""])
