"""The comparison against a real Prometheus: who is in the minority, and what changed when."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detector.backfilled import backfilled
from peerwatch_detector.diagnosis.config.watch import ConfigState, read_state
from peerwatch_detector.errors import ReadError
from peerwatch_detector.reading import instant_reader
from peerwatch_detector.reading.instant_reader import InstantReader
from peerwatch_detector.reading.settings import ReadingSettings
from peerwatch_detector.service.change_log import FailureLog
from peerwatch_detector.service.configuration_specs import configuration_families
from peerwatch_detector.service.configurations import JobConfigurations
from peerwatch_detector.service.workers import attempt

# One Prometheus for all.
pytestmark = pytest.mark.xdist_group("watch_live")

START, CHANGE, LONG, MINUTE = 1_700_000_000, 3600, 7200, 60
HOSTILE = 'a"b\\c|.* $'


def _config(node: int, time: int) -> Iterator[tuple[str, str, str]]:
    """Yield family, key and value of what a node says at a time."""
    yield "node_config_info", "gpu.vbios", "96.2" if node == 7 else "96.1"
    governor = "powersave" if node == 3 and time >= CHANGE else "performance"
    yield "node_config_info", "cpu.governor", governor
    yield "node_config_info", "kernel.parameters", "other" if node == 6 else HOSTILE
    yield "node_config_info", "machine.bios", "ab"[node % 2]
    yield "rank_config_info", "rank.environment", "read"
    if node != 5:
        yield "rank_config_info", "rank.NCCL_IB_HCA", "mlx5_0"
    if node == 2:
        for rank in range(2):
            level = ("WARN", "INFO")[rank]
            yield "rank_config_info", f"rank.{rank}.NCCL_DEBUG", level
    else:
        yield "rank_config_info", "rank.NCCL_DEBUG", "WARN"


def _samples() -> Iterator[str]:
    families: dict[str, dict[str, None]] = {}
    for time in range(0, LONG, MINUTE):
        for node in range(9):
            # The ninth node is of no job, and set up otherwise throughout.
            job = "llm" if node < 8 else "other"
            who = f'node="c{node}"'
            line = f'host_job_info{{job_id="{job}",{who}}} 1 {START + time}'
            families.setdefault("host_job_info", {})[line] = None
            for name, key, value in _config(node, time):
                text = (value if node < 8 else "x").replace("\\", "\\\\").replace('"', '\\"')
                labels = f'{who},key="{key}",value="{text}"'
                if name == "rank_config_info":
                    labels += f',job_id="{job}"'
                families.setdefault(name, {})[f"{name}{{{labels}}} 1 {START + time}"] = None
    for name, lines in families.items():
        yield f"# TYPE {name} gauge"
        # A series' samples stand together.
        yield from sorted(lines, key=lambda line: line.rsplit(" ", 2)[0])
    yield "# EOF\n"


class Moment:
    """A detector's view of jobs' configuration that is asked at one moment after the other."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        asked = instant_reader.instant
        monkeypatch.setattr(
            instant_reader,
            "instant",
            lambda connection, query, _, deadline: asked(connection, query, self.now, deadline),
        )
        # A busy machine may take its time.
        self.reader = InstantReader(ReadingSettings(url, timeout_seconds=120), 1)
        self.jobs = JobConfigurations(self.reader, lambda: self.now)

    def read(self, seconds: int) -> ConfigState:
        self.now = float(START + seconds)
        outcome = attempt(self.jobs.asking("llm"))
        self.jobs.take("llm", outcome, FailureLog())
        if outcome.error is not None:
            raise outcome.error
        return self.jobs.states({"llm"})["llm"]


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    with backfilled(tmp_path_factory.mktemp("prometheus"), "\n".join(_samples())) as url:
        yield url


@pytest.fixture
def moment(url, monkeypatch) -> Iterator[Moment]:
    moment = Moment(url, monkeypatch)
    yield moment
    moment.reader.close()


def named(state: ConfigState) -> set[tuple[str, str, str, str]]:
    return {(each.node, each.key, each.value, each.majority) for each in state.minorities}


USUAL = {
    ("c7", "gpu.vbios", "96.2", "96.1"),
    ("c6", "kernel.parameters", "other", HOSTILE),
    ("c5", "rank.NCCL_IB_HCA", "(unset)", "mlx5_0"),
    ("c2", "rank.1.NCCL_DEBUG", "INFO", "WARN"),
}


def test_minorities_are_named_and_splits_name_nobody(moment):
    state = moment.read(CHANGE - 300)

    assert USUAL == named(state)
    assert ["machine.bios"] == [split.key for split in state.splits]
    assert () == state.changes


def test_a_change_is_found_with_its_time_and_published(moment):
    moment.read(CHANGE - 300)
    moment.read(CHANGE)
    # Old values are shown for five minutes more, as these samples have no end.
    state = moment.read(CHANGE + 360)

    (change,) = state.changes
    assert ("c3", "cpu.governor", "performance", "powersave") == (
        change.node,
        change.key,
        change.before,
        change.after,
    )
    assert START + CHANGE == change.time
    assert USUAL | {("c3", "cpu.governor", "powersave", "performance")} == named(state)
    rows = {item.spec.name: item.rows for item in configuration_families({"llm": state})}
    assert [(("llm", "c3", "cpu.governor"), change.time)] == (
        rows["peerwatch_job_config_change_timestamp_seconds"]
    )
    assert 5 == len(rows["peerwatch_job_config_minority"])
    # It stands in later readings, with the same time.
    assert (change,) == moment.read(CHANGE + 720).changes


def test_after_a_restart_changes_of_the_last_hour_are_found(moment):
    (change,) = moment.read(CHANGE + 1800).changes

    assert START + CHANGE == change.time


def test_a_job_that_nobody_has_and_a_server_that_is_gone_say_so(moment):
    now = float(START + CHANGE)
    empty = read_state(moment.reader, "none", None, now)

    assert ((), (), ()) == (empty.minorities, empty.splits, empty.changes)
    gone = InstantReader(ReadingSettings("http://127.0.0.1:9", timeout_seconds=5), 1)
    with pytest.raises(ReadError):
        read_state(gone, "llm", None, now)
    gone.close()
