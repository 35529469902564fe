"""Segments that a program names hundreds of times a step, on a GPU that is simulated."""

from __future__ import annotations

import itertools
import time

import pytest

from peerwatch_exporter.hook.peerwatch_spans.gpu import GpuTimer
from peerwatch_exporter.hook.peerwatch_spans.recorder import Recorder
from peerwatch_exporter.hook.peerwatch_spans.sampling import MOST_STEPS, StepSampler
from peerwatch_exporter.hook.peerwatch_spans.segments import segment_of_thread

from .test_spans_gpu import Gpu

_MS = 1_000_000


def sampled(sampler, steps, spans, milliseconds=50, first=0):
    """Return the numbers of the steps that were timed."""
    timed = []
    for step in range(first, first + steps):
        if sampler.is_timed:
            timed.append(step)
            sampler.seen += spans
        sampler.step_ended(step + 1, milliseconds * _MS)
    return timed


@pytest.mark.parametrize(
    ("spans", "every"), [(0, 1), (20, 1), (21, 2), (80, 4), (200, 16), (10**6, MOST_STEPS)]
)
def test_as_many_steps_are_timed_as_the_limit_allows(spans, every):
    sampler = StepSampler(400)  # 20 in a step of 50 ms
    sampled(sampler, 1024, spans)
    assert every == sampler.every
    timed = sampled(sampler, 256, spans, first=1024)
    assert list(range(1024, 1280, every)) == timed


def test_ranks_with_fewer_spans_time_the_steps_of_those_with_more():
    few, many = StepSampler(400), StepSampler(400)
    for sampler, spans in ((few, 50), (many, 300)):
        sampled(sampler, 333, spans)
    timed = sampled(few, 333, 50, first=333), sampled(many, 333, 300, first=333)
    assert set(timed[1]) < set(timed[0])


def test_one_long_step_changes_nothing_and_longer_steps_do():
    sampler = StepSampler(400)
    sampled(sampler, 512, 200)
    sampled(sampler, 16, 200, milliseconds=60_000, first=512)  # of which one was timed
    assert 16 == sampler.every
    sampled(sampler, 512, 200, milliseconds=1000, first=528)
    assert 1 == sampler.every


def test_rate_at_the_limit_does_not_go_back_and_forth():
    sampler = StepSampler(400)
    sampled(sampler, 64, 21)
    seen = set()
    for first in range(64, 640, 16):
        sampled(sampler, 16, 19 + first // 16 % 2 * 2, first=first)
        seen.add(sampler.every)
    assert {2} == seen


class Job:
    """A loop of steps that names segments, with the recorder of a rank and a simulated GPU."""

    def __init__(self, gpu, directory):
        self.gpu = gpu
        self.recorder = Recorder(str(directory))
        self.timer = GpuTimer(gpu, self.recorder, StepSampler(400))
        self.recorder.time_on(self.timer)

    def step(self, names):
        began = self.gpu.now
        for name, milliseconds in names:
            with self.segment(name):
                self.gpu.advance(milliseconds)
        self.recorder.step += 1
        self.timer.sampler.step_ended(self.recorder.step, self.gpu.now - began)
        self.timer.poll()

    def segment(self, name):
        return self.recorder.local.segments.get(name) or segment_of_thread(self.recorder, name)

    def totals(self):
        """Return seconds and number of spans by name."""
        names = self.recorder.names.segments
        totals = self.recorder._totals(len(names))
        return {
            name: (nanoseconds / 1e9, count)
            for name, (nanoseconds, count) in zip(names, totals, strict=False)
            if count
        }


@pytest.fixture
def job(monkeypatch, tmp_path):
    gpu = Gpu()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: gpu.now)
    return Job(gpu, tmp_path)


def test_totals_are_those_of_all_steps_though_few_are_timed(job):
    events = itertools.count()
    recorded = job.gpu.Event

    def event(enable_timing):
        made = recorded(enable_timing)
        record = made.record
        made.record = lambda stream: (next(events), record(stream))
        return made

    job.gpu.Event = event
    for _ in range(480):
        job.step([("layer", 0.25)] * 200)
    seconds, count = job.totals()["layer"]
    assert pytest.approx(480 * 200, rel=0.05) == count
    assert pytest.approx(480 * 0.05, rel=0.05) == seconds
    # Two for each span would be 192,000.
    assert next(events) < 2 * 200 * (480 / 16 + 40)


def test_segment_that_does_not_come_in_every_step_is_always_timed(job):
    """Every 100th step, of which a sampled one of 16 would meet every fourth."""
    for step in range(800):
        names = [("layer", 0.25)] * 200
        if step % 100 == 0:
            names.append(("evaluation", 1000))
        if step % 100 in (50, 51):
            names.append(("save", 500))
        job.step(names)
    totals = job.totals()
    assert (8.0, 8) == totals["evaluation"]
    assert (8.0, 16) == totals["save"]


def test_segments_of_a_program_whose_steps_are_not_seen_are_all_timed(job):
    for _ in range(1000):
        with job.segment("request"):
            job.gpu.advance(1)
        job.timer.poll()
    assert (1.0, 1000) == job.totals()["request"]
