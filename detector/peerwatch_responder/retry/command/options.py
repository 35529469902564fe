"""The flags of ``peerwatch-responder advise``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from peerwatch_responder.retry.answer import KINDS

if TYPE_CHECKING:
    import argparse

DESCRIPTION = """\
Says whether a failed job should be started again, from its logs: with the line it failed of, what
followed from it, and what the same failure did before."""

EPILOG = """\
exit status, for schedulers:
   0  start it again         10  start it again elsewhere     11  start it again after a while
  20  do not start it again  21  ask its owner                 1  an error    2  a mistake in flags

examples:
  peerwatch-responder advise slurm-4711.out
  peerwatch-responder advise --slurm-job-id 4711 --json
  peerwatch-responder advise /var/log/jobs/4711/ --exit-code 134
  peerwatch-responder advise --pod training/bert-worker-0
  kubectl logs bert-worker-0 | peerwatch-responder advise --job bert --attempt 3 -
  peerwatch-responder advise slurm-4711.out --correct retry --note "the file server was restarted"
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser."""
    parser.add_argument(
        "logs", nargs="*", metavar="LOG", help="a file, a folder, or - for standard input"
    )
    where = parser.add_argument_group("where the logs are")
    where.add_argument(
        "--slurm-job-id", metavar="ID", help="the output of this job, and what Slurm says of it"
    )
    where.add_argument("--pod", metavar="NAMESPACE/POD", help="the logs of this pod's containers")
    where.add_argument(
        "--pods-directory",
        type=Path,
        metavar="DIR",
        help="the node's folder of pods' logs, such as /var/log/pods, in place of the API server",
    )
    known = parser.add_argument_group("what else is known of the job")
    known.add_argument("--job", default="", metavar="NAME", help="the same for all its attempts")
    known.add_argument("--attempt", default="", metavar="NUMBER", help="which run of it this is")
    known.add_argument("--exit-code", type=int, metavar="N", help="-9 and 137 are both SIGKILL")
    known.add_argument(
        "--reason", default="", help="Kubernetes' reason for its end, such as Evicted"
    )
    known.add_argument("--node", default="", help="where it ran, if it ran on one node")
    asked = parser.add_argument_group("who else is asked")
    asked.add_argument("--prometheus", metavar="URL", help="for the diagnosis and the last step")
    asked.add_argument("--history", type=Path, metavar="FILE", help="in place of the settings'")
    asked.add_argument("--no-history", action="store_true", help="neither read it nor write to it")
    asked.add_argument("--no-model", action="store_true", help="do not ask the learnt model")
    person = parser.add_argument_group("what a person says")
    person.add_argument(
        "--correct", choices=KINDS, metavar="ADVICE", help=f"what is right: {', '.join(KINDS)}"
    )
    person.add_argument("--note", default="", help="why, in a few words")
