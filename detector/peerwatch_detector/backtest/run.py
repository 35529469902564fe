"""Replays recorded cases, each as the online detector would have evaluated it, some at a time.

Cases are independent of one another, so they are shared out over processes. What comes back is
in the order of the folders, whatever finished first; a broken case costs only itself.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from peerwatch_common.errors import ConfigError
from peerwatch_detector.backtest.cases import SAMPLES, Case, Truth, load_case
from peerwatch_detector.backtest.replay import replay
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection.findings import Finding
from peerwatch_detector.errors import CaseError, ModelError
from peerwatch_detector.models.store import Bundle

# Configurations that a case is replayed with, by the name they are reported under.
Variants = Mapping[str, DetectorConfig]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of one case folder.

    Parameters
    ----------
    folder, case
        Where it lies, and its name.
    nodes
        The job's nodes.
    seconds
        Length of the case.
    truth
        What was wrong, as far as the folder tells.
    findings
        By variant, in the order they were raised; ``raised`` is in seconds from the start.
    not_compared
        Metrics of the case, with their units, that the configuration does not compare.
    incomplete
        What the case lacks, though it could be evaluated; or empty.
    error
        Why it could not be evaluated; or empty.
    """

    folder: Path
    case: str
    nodes: tuple[str, ...] = ()
    seconds: float = 0.0
    truth: Truth | None = None
    findings: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    not_compared: tuple[str, ...] = ()
    incomplete: str = ""
    error: str = ""


def variant(config: DetectorConfig, changes: Mapping[str, object]) -> DetectorConfig:
    """Return a configuration with other settings, checked like one from a file.

    Parameters
    ----------
    config
        What stays.
    changes
        New values by path, such as ``{"similarity.largest_share": 0.5}``.

    Raises
    ------
    ConfigError
        If a value is not possible.
    """
    values = config.model_dump(exclude_unset=True)
    for path, value in changes.items():
        *sections, name = path.split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    try:
        return type(config).model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            [
                f"{'.'.join(map(str, mistake['loc'])) or 'configuration'}: {mistake['msg']}, "
                f"got {mistake['input']!r}."
                for mistake in error.errors()
            ]
        ) from error


def replay_cases(
    folders: Sequence[Path], variants: Variants, bundle: Bundle, processes: int = 1
) -> Iterator[CaseResult]:
    """Replay every case with every variant and yield the results in the order of the folders.

    Parameters
    ----------
    folders
        Case folders.
    variants
        Configurations to replay each case with.
    bundle
        Trained models.
    processes
        How many cases at a time; 1 stays in this process.

    Raises
    ------
    CaseError
        If a process is killed from outside; anything wrong with a case is in its result.
    ModelError
        If the models do not fit the configuration: that concerns every case.
    """
    task = partial(_replay_folder, variants=variants, bundle=bundle)
    if processes <= 1 or len(folders) <= 1:
        yield from map(task, folders)
        return
    # A forked child may inherit locks of the threads that arithmetic libraries start.
    context = multiprocessing.get_context("spawn")
    count = min(processes, len(folders))
    with ProcessPoolExecutor(count, context, initializer=_end_with_the_parent) as pool:
        try:
            yield from pool.map(task, folders)
        except BrokenProcessPool as error:
            raise CaseError(
                f"One of {processes} processes was killed, likely for want of memory; give fewer "
                "with --processes."
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with_the_parent() -> None:
    """Let this process of the pool end at once and silently when its parent does."""
    # A Ctrl-C reaches all processes.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a process of the pool has a parent"

    def wait() -> None:
        # Left alone, a process of the pool would wait for work for ever.
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def line_of(result: CaseResult, name: str) -> str:
    """Return the JSON line of a case for one variant."""
    return json.dumps(
        {
            "case": result.case,
            "findings": [
                {
                    "time_seconds": finding.raised,
                    "node": finding.node,
                    "gpu": finding.gpu or None,
                    "metric": finding.metric,
                    "method": finding.method,
                    "score": float(finding.score),
                }
                for finding in result.findings[name]
            ],
        }
    )


def _replay_folder(folder: Path, *, variants: Variants, bundle: Bundle) -> CaseResult:
    try:
        case = load_case(folder)
        unknown = _unknown(folder, case, variants)
        findings = {
            name: replay(case, config, bundle).findings for name, config in variants.items()
        }
    except CaseError as error:
        return CaseResult(folder, folder.name, error=str(error))
    except ModelError:
        raise
    except Exception as error:
        # A bug met in one case must not cost the others.
        return CaseResult(
            folder,
            folder.name,
            error=f"{folder}: evaluating it failed with {error!r}; please report this.",
        )
    unheard = case.nodes_without_samples()
    return CaseResult(
        folder,
        case.name,
        case.nodes,
        case.seconds,
        case.truth,
        findings,
        unknown,
        f"{folder / SAMPLES}: no sample of {', '.join(unheard)} in any metric; evaluated without."
        if unheard
        else "",
    )


def _unknown(folder: Path, case: Case, variants: Variants) -> tuple[str, ...]:
    """Return the metrics no variant looks at.

    Raises
    ------
    CaseError
        If those are all.
    """
    metrics = [metric for config in variants.values() for metric in config.read_metrics()]
    unknown = case.not_compared(metrics)
    if len(unknown) == len(case.units):
        raise CaseError(
            f"{folder / SAMPLES}: none of its metrics is known to the configuration: "
            f"{', '.join(unknown)}; name them in metrics.extra, with their units."
        )
    return unknown
