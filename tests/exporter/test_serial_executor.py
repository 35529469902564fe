"""The executor: one thread for many collectors, and another one around a call that blocks."""

from __future__ import annotations

import threading

import pytest

from fake_collectors import Blocking, Returning, wait_until
from hardware_cases import NOW, FakeClock
from peerwatch_exporter.schedule.serial_executor import SerialExecutor
from peerwatch_exporter.schedule.worker import ThreadWorker


@pytest.fixture
def let_go():
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def executor(request):
    # Threads of other tests may still be ending.
    executor = SerialExecutor(request.node.name)
    executor.join()
    yield executor
    executor.leave()


class Work:
    """Notes in which thread each piece of work was done."""

    def __init__(self, executor):
        self.executor = executor
        self.threads = []

    def do(self, count):
        before = len(self.threads)
        for _ in range(count):
            self.executor.submit(lambda: self.threads.append(threading.get_ident()))
        return lambda: len(self.threads) == before + count


def threads(executor):
    return [thread for thread in threading.enumerate() if thread.name == executor._name]


def test_work_is_done_in_order_by_one_thread(executor):
    done = []
    for number in range(50):
        executor.submit(lambda number=number: done.append((number, threading.get_ident())))
    wait_until(lambda: len(done) == 50)
    assert list(range(50)) == [number for number, _ in done]
    assert 1 == len({thread for _, thread in done})
    assert threading.get_ident() != done[0][1]


def test_work_behind_a_call_that_blocks_goes_on_elsewhere(executor, let_go):
    work = Work(executor)
    executor.submit(let_go.wait)
    done = work.do(3)
    executor.relieve()
    wait_until(done)
    assert 2 == len(threads(executor))


def test_second_thread_sleeps_once_the_first_is_free_again(executor, let_go):
    work, freed = Work(executor), threading.Event()
    executor.submit(lambda: (let_go.wait(), freed.set()))
    executor.submit(lambda: None)
    executor.relieve()
    let_go.set()
    assert freed.wait(60)
    wait_until(lambda: len(executor._idle) == 2)
    for _ in range(20):
        # Work is done a moment before the thread that did it sleeps.
        wait_until(work.do(5))
        wait_until(lambda: len(executor._idle) == 2)
    # Whoever slept last is woken.
    assert 1 == len(set(work.threads[-50:]))
    assert 2 == len(threads(executor))


def test_progress_is_no_reason_for_another_thread(executor, let_go):
    work = Work(executor)
    for _ in range(5):
        wait_until(work.do(3))
        executor.submit(let_go.wait)
        executor.submit(lambda: None)
        # Since the last call three pieces of work were done.
        executor.relieve()
        assert 1 == len(threads(executor))
        let_go.set()
        wait_until(work.do(1))
        let_go.clear()
        executor.relieve()


def test_no_thread_is_started_while_nothing_waits(executor, let_go):
    entered = threading.Event()
    executor.submit(lambda: (entered.set(), let_go.wait()))
    assert entered.wait(60)
    for _ in range(10):
        executor.relieve()
    assert 1 == len(threads(executor))


def test_threads_end_when_the_last_user_leaves():
    executor = SerialExecutor("executor-of-two")
    executor.join()
    executor.join()
    wait_until(Work(executor).do(1))
    executor.leave()
    wait_until(Work(executor).do(1))
    executor.leave()
    wait_until(lambda: "executor-of-two" not in {each.name for each in threading.enumerate()})


def test_collector_that_blocks_costs_only_itself(let_go):
    clock, executor = FakeClock(), SerialExecutor("executor-test")
    blocking = Blocking()
    blocking.let_go = let_go
    collectors = {"a": blocking, "b": Returning(), "c": Returning("host_load1")}
    workers = [
        ThreadWorker(
            name,
            lambda collector=collector: collector,
            clock=clock,
            monotonic=clock,
            executor=executor,
        )
        for name, collector in collectors.items()
    ]
    for _ in range(2):
        for worker in workers:
            worker.request()
        late = workers[0].report(NOW + 0.05)
        others = [worker.report(NOW + 20) for worker in workers[1:]]
        assert ("deadline_exceeded", [True, True]) == (
            late.error,
            [report.success for report in others],
        )
    assert (1, 2) == (blocking.started, collectors["b"].runs)
    for worker in workers:
        worker.close()
