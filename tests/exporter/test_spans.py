"""Files of spans: what a rank writes is read back whole, and what is damaged says so."""

from __future__ import annotations

import os
import struct
import threading
import time

import pytest

from hardware_cases import collected
from peerwatch_exporter.collectors.spans import SpansCollector
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.hook import peerwatch_spans
from peerwatch_exporter.hook.peerwatch_spans import recorder as writing
from peerwatch_exporter.hook.peerwatch_spans.names import DATA, GC, STEP
from peerwatch_exporter.hook.peerwatch_spans.recorder import Recorder
from peerwatch_exporter.hook.peerwatch_spans.ring import STATE_AT, places
from peerwatch_exporter.settings.config import ExporterConfig, HeartbeatConfig
from peerwatch_exporter.sources import real_sources
from peerwatch_exporter.sources.jobs.known_ranks import KnownRank
from peerwatch_exporter.sources.spans.ring import GarbledSpansError, read_header, read_spans

ALWAYS = (0.0, 4e9)


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Return a function that makes the recorder of a rank, with its file."""
    monkeypatch.setenv("PEERWATCH_JOB_ID", "job")
    monkeypatch.setenv("PEERWATCH_SPANS_RECORDS", "4096")

    def make(rank=0, *, opened=True):
        recorder = Recorder(str(tmp_path))
        monkeypatch.setattr(writing, "rank_of_process", lambda has_stepped: (rank, 4))
        if opened:
            recorder._open_if_rank()
            recorder.publish()
        return recorder

    return make


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rank-0.spans"


def collector(directory):
    config = ExporterConfig(heartbeat=HeartbeatConfig(directory=directory))
    return SpansCollector(config, real_sources(config))


def test_spans_come_back_as_they_were_written(record, path):
    recorder = record(opened=False)
    before = time.perf_counter_ns()
    recorder.add(DATA, before, before + 2_500_000)  # before the rank is known
    recorder._open_if_rank()
    recorder.step = 7
    recorder.add(STEP, before, before + 50_000_000)
    detail = recorder.names.detail("1", "send", 3)
    recorder.add(recorder.names.segment("tokenize"), before + 1000, before + 2000, detail, 41)
    recorder.publish()

    header, spans = read_spans(path, 0, *ALWAYS)
    data, step, own = spans
    assert (0, 4, os.getpid(), "job") == (header.rank, header.world_size, header.pid, header.job_id)
    assert ("data", pytest.approx(0.0025), 0, None) == (
        data.segment,
        data.duration,
        data.value,
        data.detail,
    )
    assert ("step", pytest.approx(0.05), 7) == (step.segment, step.duration, step.value)
    assert ("tokenize", 41, ("1", "send", 3)) == (own.segment, own.value, own.detail)
    assert pytest.approx(1e-6, abs=5e-7) == own.start - step.start
    now = time.time()
    assert now - 60 < step.start < now
    totals = {total.segment: (total.seconds, total.count) for total in header.totals}
    assert (0.05, 1) == totals["step"]
    assert (0.0025, 1) == totals["data"]


def test_ring_keeps_the_newest_and_totals_keep_all(record, path):
    recorder = record()
    count = 10_000
    for number in range(count):
        recorder.add(DATA, number * 1000 + 1, number * 1000 + 501, value=number)
    recorder.publish()
    header, spans = read_spans(path, 0, *ALWAYS)
    numbers = [span.value for span in spans]
    # The oldest slots may be under the writer's hand.
    assert list(range(count - 4096 + 256, count)) == numbers
    totals = {total.segment: (total.seconds, total.count) for total in header.totals}
    assert (pytest.approx(count * 500e-9), count) == totals["data"]
    assert count == header.written
    assert 65536 + 4096 * 24 == path.stat().st_size


def test_only_spans_that_were_under_way_in_the_range_are_read(record, path):
    recorder = record()
    origin = time.perf_counter_ns() - 600 * 10**9
    for second in range(600):
        recorder.add(STEP, origin + second * 10**9, origin + (second + 1) * 10**9, value=second)
    recorder.publish()
    begin = read_header(path, 0).unix_offset_ns / 1e9 + origin / 1e9
    _, spans = read_spans(path, 0, begin + 100.5, begin + 102.5)
    assert [100, 101, 102] == [span.value for span in spans]


def test_garbage_collection_counts_whole_but_only_long_runs_are_records(record, path):
    recorder = record()
    recorder.add_gc(0, 50_000, shortest=100_000)
    recorder.add_gc(0, 200_000, shortest=100_000)
    recorder.publish()
    header, spans = read_spans(path, 0, 0, 4e9)
    assert 2 == header.totals[GC].count
    assert [pytest.approx(2e-4)] == [span.duration for span in spans]


def test_segments_and_details_are_bounded_and_what_is_dropped_is_counted(record, path):
    recorder = record()
    numbers = [recorder.names.segment(f"own-{n}") for n in range(40)]
    assert 32 == sum(number is not None for number in numbers)
    assert recorder.names.segment("data") == DATA
    assert [None] * 4 == [recorder.names.segment(bad) for bad in ("", "a b", "x" * 49, ["list"])]
    assert 511 == len({recorder.names.detail("0", "send", peer) for peer in range(2000)} - {0})
    recorder.publish()
    header = read_header(path, 0)
    assert 8 + 4 == header.dropped
    assert 40 == len(header.totals)
    assert 512 == len(header.details)


def test_counters_never_fall_when_threads_come_and_go(record, path):
    import threading

    recorder = record()
    seen = []
    for _ in range(100):
        thread = threading.Thread(target=recorder.add, args=(DATA, 0, 1_000_000))
        thread.start()
        thread.join()
        recorder.publish()
        seen.append(read_header(path, 0).totals[DATA].count)
    assert list(range(1, 101)) == seen
    assert 1 >= len(recorder._tallies)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda b: b"", "is cut off: 0 bytes"),
        (lambda b: b[:1000], "is cut off: 1000 bytes"),
        (lambda b: b[:100_000], "is cut off: 100000 of 163840 bytes"),
        (lambda b: b"{}" * 90_000, "begins with"),
        (lambda b: b[:12] + struct.pack("<II", 25, 4096) + b[20:], "records of 25 bytes"),
        (lambda b: b[:16] + struct.pack("<I", 4095) + b[20:], "4095 records"),
        (lambda b: b[:20] + struct.pack("<i", 5) + b[24:], "is rank 5's by its content"),
        (lambda b: b[:36] + struct.pack("<I", 10**9) + b[40:], "which no header holds"),
        (lambda b: b[:1160] + b"\xff" + b[1161:], "do not match their checksum"),
        (lambda b: b[:32] + bytes(16) + b[48:], "names no segments"),
        (
            lambda b: (
                b[: STATE_AT + 48] + struct.pack("<ddI", float("nan"), 0, 1) + b[STATE_AT + 68 :]
            ),
            "has a clock",
        ),
    ],
)
def test_damaged_file_costs_only_itself_and_says_why(record, path, tmp_path, damage, reason):
    record(0)
    record(1).publish()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(GarbledSpansError, match=reason):
        read_header(path, 0)
    families = []
    with pytest.raises(PartialData, match=reason) as caught:
        families.extend(collector(tmp_path).collect())
    assert "garbled_spans" == caught.value.error_class


def test_garbage_in_the_ring_is_left_out(record, path):
    recorder = record()
    for number in range(100):
        recorder.add(DATA, number, number + 1)
    recorder.publish()
    content = bytearray(path.read_bytes())
    content[65536 + 24 * 10 : 65536 + 24 * 20] = os.urandom(240)
    path.write_bytes(content)
    _, spans = read_spans(path, 0, *ALWAYS)
    assert 90 == len(list(spans))


def test_other_things_at_the_path_are_refused(tmp_path):
    os.mkfifo(tmp_path / "rank-0.spans")
    (tmp_path / "rank-1.spans").symlink_to("/dev/zero")
    (tmp_path / "rank-2.spans").mkdir()
    (tmp_path / "rank-x.spans").write_text("")
    with pytest.raises(PartialData) as caught:
        list(collector(tmp_path).collect())
    assert 2 == str(caught.value).count("; ")


def test_collector_publishes_totals_until_the_file_is_forgotten(record, tmp_path, path):
    recorder = record()
    recorder.add(DATA, 0, 1_500_000_000)
    recorder.dropped = 3
    recorder.publish()
    found = collected(collector(tmp_path))
    assert 1.5 == found["span_seconds_total", "job", "0", "data"]
    assert 1 == found["span_count_total", "job", "0", "data"]
    assert 3 == found["span_dropped_total", "job", "0"]
    assert 0 == found["rank_clock_offset_seconds", "job", "0"]
    assert not any(key[0] == "span_gpu_pending_seconds" for key in found)

    content = bytearray(path.read_bytes())
    struct.pack_into("<q", content, STATE_AT + 8, time.perf_counter_ns() - 1900 * 10**9)
    path.write_bytes(content)
    with pytest.raises(NoData):
        list(collector(tmp_path).collect())


def test_rank_that_names_no_job_has_the_one_it_is_known_to_run_in(record, tmp_path, monkeypatch):
    monkeypatch.delenv("PEERWATCH_JOB_ID")
    record()
    config = ExporterConfig(heartbeat=HeartbeatConfig(directory=tmp_path))
    sources = real_sources(config)
    sources.known_ranks.update([KnownRank("mapped", 0, os.getpid(), is_alive=True)])
    found = collected(SpansCollector(config, sources))
    assert 0 == found["span_dropped_total", "mapped", "0"]


def test_forked_child_writes_nothing(record, path):
    recorder = record()
    recorder.add(DATA, 0, 1)
    child = os.fork()
    if not child:
        recorder.silence()  # what register_at_fork calls
        recorder.add(DATA, 0, 1)
        recorder.end(STEP, recorder.begin(STEP))
        recorder._end()
        os._exit(0)
    assert 0 == os.waitpid(child, 0)[1]
    recorder.publish()
    header, spans = read_spans(path, 0, *ALWAYS)
    assert 1 == len(list(spans))
    assert 1 == header.written


def test_no_space_leaves_the_rank_alone(record, tmp_path):
    recorder = record(opened=False)
    recorder._directory = "/proc/no/such"
    with pytest.raises(OSError, match="no"):
        recorder._open_if_rank()
    recorder.add(DATA, 0, 1)
    recorder.publish()
    assert [] == list(tmp_path.iterdir())


def test_a_segment_of_the_program_does_what_begin_and_end_do(record, path, monkeypatch):
    recorder = record()
    monkeypatch.setattr(peerwatch_spans, "_active", recorder)
    recorder.step = 5
    with peerwatch_spans.segment("own"), peerwatch_spans.segment("own"):
        pass
    number = recorder.names.segment("own")
    outer = recorder.begin(number)
    assert recorder.begin(number) is None
    recorder.end(number, outer)
    for bad in ("a b", ["list"]):
        with peerwatch_spans.segment(bad):
            pass
    recorder.publish()

    header, spans = read_spans(path, 0, *ALWAYS)
    assert [("own", 5, None)] * 2 == [(span.segment, span.value, span.detail) for span in spans]
    assert 2 == header.dropped


def test_marks_of_records_end_with_32_bits_and_begin_anew(record, path):
    recorder = record()
    recorder.place = recorder.place[0], places(4096, (1 << 32) - 3)
    recorder.newest = ((1 << 32) - 3) << 32
    for start in range(6):
        recorder.add(DATA, 1_000_000_000 * start, 1_000_000_000 * start + 1)
    recorder.publish()
    header, spans = read_spans(path, 0, *ALWAYS)
    starts = [round(span.start - header.unix_offset_ns / 1e9) for span in spans]
    # The one that would have the mark of an empty place is counted as dropped.
    assert [0, 1, 3, 4, 5] == starts
    assert 1 == header.dropped


def test_segments_of_threads_add_up_and_outlive_them(record, path, monkeypatch):
    recorder = record()
    monkeypatch.setattr(peerwatch_spans, "_active", recorder)

    def work():
        for _ in range(10):
            with peerwatch_spans.segment("own"), peerwatch_spans.segment("inner"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work()
    recorder.publish()
    header, spans = read_spans(path, 0, *ALWAYS)
    totals = {total.segment: total.count for total in header.totals if total.count}
    assert {"own": 50, "inner": 50} == totals
    assert 100 == len(list(spans))
    assert 0 == header.dropped


def test_threads_beyond_the_limit_share_a_tally_and_time_their_segments(record, path, monkeypatch):
    recorder = record()
    monkeypatch.setattr(writing, "MOST_THREADS", 0)
    monkeypatch.setattr(peerwatch_spans, "_active", recorder)

    def work():
        for _ in range(2):
            with peerwatch_spans.segment("own"), peerwatch_spans.segment("own"):
                pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    recorder.publish()
    assert 2 == len(list(read_spans(path, 0, *ALWAYS)[1]))


def test_a_gpu_takes_the_times_of_segments_from_the_moment_it_is_there(record, path, monkeypatch):
    recorder = record()
    monkeypatch.setattr(peerwatch_spans, "_active", recorder)
    given = []

    class Gpu:
        """A GPU timer that keeps what it is given; at first it has only the host's time."""

        begins = iter([5, "event", "event"])

        def begin(self):
            return next(self.begins)

        def end(self, *span):
            given.append(span)

        def oldest_pending(self):
            return 0, 0

    def own():
        with peerwatch_spans.segment("own"):
            pass

    own()
    recorder.time_on(Gpu())
    for _ in range(4):  # the fourth begin raises, which costs its span alone
        own()
    recorder.publish()
    number = recorder.names.segment("own")
    assert [(number, "event", 0, 0)] * 2 == given
    header, spans = read_spans(path, 0, *ALWAYS)
    assert 2 == len(list(spans))
    assert 1 == header.dropped
