"""Segments timed by events, on a GPU that is simulated: nobody may ever wait for it."""

from __future__ import annotations

import itertools
import sys
import time
from types import SimpleNamespace

import pytest

from peerwatch_exporter.hook.peerwatch_spans import gpu as timing
from peerwatch_exporter.hook.peerwatch_spans.gpu import GpuTimer
from peerwatch_exporter.hook.peerwatch_spans.names import BACKWARD, FORWARD
from peerwatch_exporter.hook.peerwatch_spans.recorder import ON_GPU
from peerwatch_exporter.hook.peerwatch_spans.sampling import StepSampler


class Recorder:
    """Takes spans as the real one does, and keeps them for the test."""

    def __init__(self):
        self.spans = []
        self.dropped = 0

        self.weights = []

    def add(self, segment, start, end, detail, value, flag, weight):
        self.spans.append((segment, start, end, detail, value, flag))
        self.weights.append(weight)


class Gpu:
    """torch.cuda with a GPU whose clock runs by hand; to synchronise is an error.

    ``backlog_ns`` is how far the stream is behind the host; its clock began elsewhere and drifts.
    """

    def __init__(self, drift=0.0):
        self.now = 5_000_000_000
        self.drift = drift
        self.backlog_ns = 0
        self.hangs = False
        self.initialized = True
        self.capturing = False
        self.made = 0
        self.queries = 0
        self.stream = SimpleNamespace(device_index=0, cuda_stream=0)

    def advance(self, milliseconds):
        self.now += int(milliseconds * 1e6)

    def is_initialized(self):
        return self.initialized

    def is_current_stream_capturing(self):
        return self.capturing

    def current_stream(self):
        return self.stream

    def Event(self, enable_timing):  # noqa: N802 - torch's name
        assert enable_timing
        self.made += 1
        return Event(self)

    def synchronize(self, *_):
        raise AssertionError("the GPU was waited for")


class Event:
    def __init__(self, gpu):
        self.gpu = gpu
        self.at = None

    def record(self, stream):
        assert not self.gpu.capturing, "recorded into a graph"
        assert stream is self.gpu.stream
        self.at = None if self.gpu.hangs else self.gpu.now + self.gpu.backlog_ns

    def query(self):
        self.gpu.queries += 1
        return self.is_done()

    def is_done(self):
        return self.at is not None and self.at <= self.gpu.now

    def elapsed_time(self, other):
        assert self.is_done(), "asked for a time before it was there"
        assert other.is_done()
        return (other.at - self.at) * (1 + self.gpu.drift) / 1e6

    def synchronize(self):
        raise AssertionError("the GPU was waited for")

    wait = synchronize


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: gpu.now)
    return gpu


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def timer(gpu, recorder):
    return GpuTimer(gpu, recorder, StepSampler(400))


def segment(gpu, timer, number, milliseconds, value=0):
    begun = timer.begin()
    gpu.advance(milliseconds)
    timer.end(number, begun, 0, value)


def test_times_are_those_of_the_gpu_taken_once_it_has_finished(gpu, timer, recorder):
    gpu.backlog_ns = 0
    segment(gpu, timer, FORWARD, 1)
    assert not timer.poll()  # the GPU was idle: all is done
    gpu.backlog_ns = 20_000_000
    began = gpu.now
    segment(gpu, timer, FORWARD, 4, value=3)
    segment(gpu, timer, BACKWARD, 6)
    gpu.advance(1)
    assert timer.poll()
    assert 1 == len(recorder.spans)
    assert (FORWARD, began) == timer.oldest_pending()
    gpu.advance(100)
    assert not timer.poll()
    assert (0, 0) == timer.oldest_pending()
    _, forward, backward = recorder.spans
    # It began when the GPU came to it, 20 ms after the host gave it away.
    assert (FORWARD, began + 20_000_000, began + 24_000_000, 0, 3, ON_GPU) == forward
    assert (BACKWARD, began + 24_000_000, began + 30_000_000, 0, 0, ON_GPU) == backward


def test_hanging_gpu_shows_by_the_age_of_its_oldest_event_and_holds_a_bounded_number(
    gpu, timer, recorder
):
    gpu.hangs = True
    began = gpu.now
    for _ in range(timing.MOST_EVENTS):
        segment(gpu, timer, BACKWARD, 1)
    assert timer.poll()
    assert (BACKWARD, began) == timer.oldest_pending()
    assert timing.MOST_EVENTS == gpu.made
    assert timing.MOST_EVENTS // 2 == recorder.dropped
    assert [] == recorder.spans


def test_events_are_used_again(gpu, timer, recorder):
    for _ in range(10_000):
        segment(gpu, timer, FORWARD, 2)
        timer.poll()
    assert 10_000 == len(recorder.spans)
    assert 6 > gpu.made


@pytest.mark.parametrize("drift", [-50e-6, 50e-6])
def test_clocks_of_host_and_gpu_drift_apart(gpu, timer, recorder, drift):
    gpu.drift = drift
    begins = []
    for number in range(6000):  # ten minutes
        gpu.backlog_ns = (number % 3) * 10_000_000
        begins.append(gpu.now + gpu.backlog_ns)
        segment(gpu, timer, FORWARD, 40)
        gpu.advance(60)
        timer.poll()
    late = [abs(span[1] - begin) for span, begin in zip(recorder.spans, begins, strict=False)]
    assert 5990 < len(late)
    assert 1_000_000 > max(late)


def test_nothing_is_recorded_into_a_graph_or_before_the_program_uses_the_gpu(gpu, timer, recorder):
    gpu.initialized = False
    assert gpu.now == timer.begin()
    gpu.initialized, gpu.capturing = True, True
    assert gpu.now == timer.begin()
    gpu.capturing = False
    begun = timer.begin()
    gpu.capturing = True  # the capture began inside
    timer.end(FORWARD, begun, 0, 0)
    assert 1 == recorder.dropped
    gpu.capturing = False
    segment(gpu, timer, FORWARD, 1)
    timer.poll()
    assert 2 == gpu.made


def test_streams_finish_each_in_its_own_order(gpu, timer, recorder):
    gpu.hangs = True
    segment(gpu, timer, FORWARD, 1)
    gpu.hangs = False
    gpu.stream = SimpleNamespace(device_index=0, cuda_stream=7)
    segment(gpu, timer, BACKWARD, 1)
    assert timer.poll()
    assert [BACKWARD] == [span[0] for span in recorder.spans]


def test_stream_is_told_by_its_handle_and_kept(gpu, recorder, monkeypatch):
    asked = []
    compiled = SimpleNamespace(
        _cuda_getDevice=lambda: gpu.stream.device_index,
        _cuda_getCurrentRawStream=lambda device: (device, gpu.stream.cuda_stream)[1],
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=gpu, _C=compiled))
    find = gpu.current_stream
    monkeypatch.setattr(gpu, "current_stream", lambda: asked.append(1) or find())
    timer = GpuTimer(gpu, recorder, StepSampler(400))
    first, second = gpu.stream, SimpleNamespace(device_index=0, cuda_stream=7)
    for stream in (first, second, first, second):
        gpu.stream = stream
        segment(gpu, timer, FORWARD, 1)
    assert not timer.poll()
    assert [FORWARD] * 4 == [span[0] for span in recorder.spans]
    assert 2 == len(asked)


def test_what_is_done_is_found_with_few_questions(gpu, timer, recorder):
    gpu.backlog_ns = 1_000_000_000
    for _ in range(1000):
        segment(gpu, timer, FORWARD, 1)
    gpu.advance(500)  # of the first half of them
    asked = gpu.queries
    assert timer.poll()
    assert 500 == len(recorder.spans)
    assert gpu.queries - asked < 20
    gpu.advance(1000)
    asked = gpu.queries
    assert not timer.poll()
    assert (1000, 1) == (len(recorder.spans), gpu.queries - asked)


def test_segment_waits_for_the_stream_on_which_it_began(gpu, timer, recorder):
    gpu.hangs = True
    begun = timer.begin()
    gpu.hangs = False
    gpu.stream = SimpleNamespace(device_index=0, cuda_stream=7)
    timer.end(FORWARD, begun, 0, 0)
    assert timer.poll()
    begun.event.at = gpu.now
    assert not timer.poll()
    assert 1 == len(recorder.spans)


def test_segment_that_ends_on_another_gpu_is_dropped(gpu, timer, recorder):
    begun = timer.begin()
    gpu.stream = SimpleNamespace(device_index=1, cuda_stream=0)
    timer.end(FORWARD, begun, 0, 0)
    timer.poll()
    assert ([], 1) == (recorder.spans, recorder.dropped)


def test_error_of_the_gpu_stays_with_the_daemon_thread(gpu, timer):
    """A device-side assertion makes every query raise: the events stay, and so does their age."""
    times = itertools.count()
    segment(gpu, timer, FORWARD, 1)

    def broken():
        next(times)
        raise RuntimeError("device-side assert triggered")

    timer._pending[0, 0][0].end.query = broken
    with pytest.raises(RuntimeError):
        timer.poll()
    assert FORWARD == timer.oldest_pending()[0]
