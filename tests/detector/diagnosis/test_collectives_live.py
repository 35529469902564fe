"""The diagnosers of collectives against a real Prometheus, from the fault to the verdict."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detector.backfilled import backfilled
from peerwatch_detector.diagnosis.collectives.hang.diagnoser import HangDiagnoser
from peerwatch_detector.diagnosis.collectives.slowness.straggler_diagnoser import StragglerDiagnoser
from peerwatch_detector.diagnosis.diagnoser import Diagnoser, Samples
from peerwatch_detector.reading import instant_reader, promql
from peerwatch_detector.reading.instant_reader import InstantReader
from peerwatch_detector.reading.settings import ReadingSettings

# One Prometheus for all.
pytestmark = pytest.mark.xdist_group("diagnosis_live")

START, STOP, STEP_SECONDS, SCRAPE_SECONDS = 1_700_000_000, 100, 0.5, 15
# Rank 3 does not come to this one.
LAST = int(STOP / STEP_SECONDS)


def _samples() -> Iterator[str]:
    """Yield the series of four ranks on two nodes, a family at a time."""
    scrapes = range(0, STOP + 90, SCRAPE_SECONDS)
    families: dict[str, list[str]] = {}

    def add(name: str, labels: str, value: float, time: int) -> None:
        line = f'{name}{{job_id="llm",{labels}}} {value} {START + time}'
        families.setdefault(name, []).append(line)

    for rank in range(4):
        who = f'node="c{rank // 2}",rank="{rank}"'
        # Each exporter is scraped at a moment of its own.
        for time in [scrape + 3 * rank for scrape in scrapes]:
            done = min(int(time / STEP_SECONDS), LAST)
            waits = time > STOP and rank != 3
            add("collective_source_up", f'{who},source="recorder"', 1, time)
            group = f'{who},group="0"'
            for state, value in (("launched", done + waits), ("completed", done)):
                add("collective_last_sequence", f'{group},state="{state}"', value, time)
            add("collective_in_flight_seconds", group, max(0, time - STOP) if waits else 0, time)
            if waits and time - STOP >= 5:
                call = 'collective="all_reduce",input="[64]",output="[64]",dtype="Float"'
                add("collective_in_flight_info", f"{group},{call}", done + 1, time)
            add("collective_group_info", f'node="c{rank // 2}",group="0",members="0-3"', 1, time)
        for time in scrapes:
            _add_straggler(families, rank, time)
    for name, lines in families.items():
        yield f"# TYPE {name} gauge"
        yield from dict.fromkeys(lines)
    yield "# EOF\n"


def _add_straggler(families: dict[str, list[str]], rank: int, time: int) -> None:
    """Add what a job shows in which rank 2 is 0.3 s late, and the clock of rank 1 0.4 s ahead."""
    labels = f'job_id="slow",node="c{rank}",rank="{rank}"'
    block, clock = time // 16, 0.4 if rank == 1 else 0.0
    values = {
        "collective_block_sequence": 32 * block,
        "collective_block_collectives": 32,
        "collective_block_arrival_timestamp_seconds": START
        + 16 * (block - 0.5)
        + clock
        + (0.3 if rank == 2 else 0.0),
        "collective_launched_total": 2 * time,
    }
    for name, value in values.items():
        line = f'{name}{{{labels},group="0"}} {value} {START + time}'
        families.setdefault(name, []).append(line)
    line = f"rank_clock_offset_seconds{{{labels}}} {clock} {START + time}"
    families.setdefault("rank_clock_offset_seconds", []).append(line)


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    with backfilled(tmp_path_factory.mktemp("prometheus"), "\n".join(_samples())) as url:
        yield url


def _asked(reader: InstantReader, kind: type[Diagnoser], job_id: str) -> Samples:
    queries = {name: promql.job_query(query, job_id) for name, query in kind.queries.items()}
    answers = reader.read(queries)
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise answer
    return answers


class Moment:
    """A reader that is asked about one moment after the other."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        asked = instant_reader.instant
        monkeypatch.setattr(
            instant_reader,
            "instant",
            lambda connection, query, _, deadline: asked(connection, query, self.now, deadline),
        )
        self.reader = InstantReader(ReadingSettings(url), 1)


@pytest.fixture
def moment(url, monkeypatch) -> Iterator[Moment]:
    moment = Moment(url, monkeypatch)
    yield moment
    moment.reader.close()


def test_a_hang_is_named_within_a_minute_and_a_healthy_job_is_not_read(moment):
    diagnoser, named = HangDiagnoser("llm"), {}
    for seconds in range(STOP - 20, STOP + 75, 5):
        moment.now = START + seconds
        samples = _asked(moment.reader, HangDiagnoser, "llm")
        if seconds <= STOP:
            assert not any(samples.values())
        for verdict in diagnoser.diagnose(samples, moment.now):
            named.setdefault(verdict, seconds - STOP)

    (verdict, *_), seconds = list(named), min(named.values())
    assert (verdict.class_name, verdict.node, verdict.rank) == ("not_launched", "c1", 3)
    assert verdict.summary == (
        f"rank 3 on node c1 did not launch all_reduce {LAST + 1} of the group of all ranks; "
        "3 ranks wait"
    )
    assert {v.rank for v in named} == {3}
    assert seconds <= 60


def test_a_straggler_is_named_and_a_clock_that_is_off_is_not(moment):
    diagnoser = StragglerDiagnoser("slow")
    verdicts = []
    for seconds in range(60, 160, 5):
        moment.now = START + seconds
        samples = _asked(moment.reader, StragglerDiagnoser, "slow")
        verdicts += diagnoser.diagnose(samples, moment.now)

    assert {(verdict.node, verdict.rank) for verdict in verdicts} == {("c2", 2)}
