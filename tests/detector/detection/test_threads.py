"""What is found does not depend on how many threads look for it."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from peerwatch_detector.bench.synthetic_job import CYCLE, SECONDS, SyntheticJob, synthetic_frames
from peerwatch_detector.config import DetectorConfig
from peerwatch_detector.detection import threads
from peerwatch_detector.detection.job_detector import Detection
from peerwatch_detector.detection.threads import each, worthwhile
from peerwatch_detector.frame import JobFrame
from peerwatch_detector.models.shipped import configured_bundle

NODES = 40


def frame(nodes: int, gpus: int) -> JobFrame:
    names = tuple(f"node-{index}" for index in range(nodes))
    per_gpu = np.zeros((nodes, gpus, 1), np.float32) if gpus else None
    labels = tuple(map(str, range(gpus)))
    return JobFrame("job", "power", names, np.zeros(1), np.zeros((nodes, 1)), labels, per_gpu)


def test_results_come_in_the_order_of_the_items() -> None:
    def work(item: int) -> int:
        time.sleep(0.01 * (3 - item))
        return item * item

    assert [0, 1, 4] == each(work, [0, 1, 2], 3)


@pytest.mark.parametrize("items", [[], [0]])
def test_next_to_nothing_stays_in_the_thread_of_the_caller(items: list[int]) -> None:
    own = threading.get_ident()

    assert [own] * len(items) == each(lambda _: threading.get_ident(), items, 4)


def test_one_thread_is_the_one_of_the_caller() -> None:
    own = threading.get_ident()

    assert [own, own, own] == each(lambda _: threading.get_ident(), [0, 1, 2], 1)


def test_several_threads_work_at_a_time() -> None:
    # Breaks if the second item is not begun before the first one ends.
    both = threading.Barrier(2, timeout=300)

    assert sorted([0, 1]) == sorted(each(lambda _: both.wait(), [0, 1], 2))


def test_an_error_comes_out_when_nobody_is_at_work_any_more() -> None:
    done = []

    def work(item: int) -> None:
        if item == 0:
            raise ValueError("the first")
        time.sleep(0.1)
        done.append(item)

    with pytest.raises(ValueError, match="the first"):
        each(work, [0, 1, 2], 2)
    assert [1, 2] == sorted(done)


@pytest.mark.parametrize(
    ("nodes", "gpus", "expected"),
    [(2499, 0, 1), (2500, 0, 6), (312, 8, 1), (313, 8, 6), (0, 0, 1)],
)
def test_only_large_jobs_are_worth_it(nodes: int, gpus: int, expected: int) -> None:
    assert expected == worthwhile(6, [frame(1, 0), frame(nodes, gpus)])


def test_a_job_without_samples_is_not_worth_it() -> None:
    assert 1 == worthwhile(6, [])


def evaluated(method: str, count: int) -> list[Detection]:
    config = DetectorConfig.model_validate(
        {"method": method, "scheduling": {"detection_threads": count}}
    )
    bundle, _ = configured_bundle(config)
    frames = synthetic_frames(NODES, 2, config, faulty=True)
    job = SyntheticJob(config, bundle.models(config, config.detection_metrics()), frames)
    return [job.until(SECONDS + cycle * CYCLE)() for cycle in range(3)]


@pytest.mark.parametrize("method", ["peerwatch", "minder", "zscore"])
def test_what_is_found_does_not_depend_on_it(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(threads, "_LEAST_UNITS", 1)
    used: set[int] = set()
    pool = threads._pool

    def watched(count: int) -> object:
        used.add(count)
        return pool(count)

    monkeypatch.setattr(threads, "_pool", watched)

    alone, together = evaluated(method, 1), evaluated(method, 3)

    assert {3} == used
    # As text, so that a missing score equals a missing score.
    assert [repr(finding) for finding in alone] == [repr(finding) for finding in together]
    if method != "zscore":
        assert alone[-1].findings
