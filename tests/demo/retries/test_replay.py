"""The replay of failed jobs: its mix, its bounds, and what advice saves of it."""

import pytest

from peerwatch_demo.retries.__main__ import main
from peerwatch_demo.retries.failed_job import MOST_RETRIES, failed_jobs
from peerwatch_demo.retries.policies import Advised, always, knowing, never
from peerwatch_demo.retries.reasons import TRANSIENT_SHARE, load_reasons
from peerwatch_demo.retries.replay import replay
from retry_cases import KNOWLEDGE

REASONS = load_reasons()


def test_the_mix_is_phillys():
    assert sum(reason.trials for reason in REASONS) == pytest.approx(1)
    assert sum(reason.trials * reason.gpu_seconds for reason in REASONS) == pytest.approx(1)
    transient = sum(reason.trials * reason.transient for reason in REASONS)
    assert transient == pytest.approx(TRANSIENT_SHARE, abs=0.01)
    by_name = {reason.name: reason for reason in REASONS}
    assert by_name["cpu_out_of_memory"].trials == pytest.approx(0.304, abs=0.005)
    # 14.63 % of the GPU time in 1.2 % of the trials.
    assert by_name["mpi_runtime_failure"].gpu_seconds == pytest.approx(12.2, abs=0.3)


def test_the_same_seed_gives_the_same_jobs():
    assert failed_jobs(REASONS, 20, 3) == failed_jobs(REASONS, 20, 3)
    assert failed_jobs(REASONS, 20, 3) != failed_jobs(REASONS, 20, 4)


def test_policies_keep_their_bounds():
    jobs = failed_jobs(REASONS, 2000, 1)
    everything, nothing, best = (replay(jobs, policy) for policy in (always, never, knowing))
    assert (nothing.retries, nothing.wasted, nothing.recovered) == (0, 0.0, 0)
    assert everything.recovered == best.recovered
    assert best.wasted < everything.wasted
    assert everything.retries <= MOST_RETRIES * len(jobs)
    # Never to retry costs 4.5 % of successes, but for those that three retries do not save.
    assert nothing.success_loss(everything) == pytest.approx(4.4, abs=0.6)


def test_advice_saves_most_of_what_is_wasted_and_loses_little():
    jobs = failed_jobs(REASONS, 1000, 1)
    best, advised = replay(jobs, always), replay(jobs, Advised(KNOWLEDGE))
    assert advised.wasted <= 0.4 * best.wasted
    assert advised.success_loss(best) <= 1.0


def test_the_command_prints_a_table_and_draws(tmp_path, capsys):
    picture, numbers = tmp_path / "a.svg", tmp_path / "a.json"
    flags = ["--jobs", "20", "--seeds", "1", "--picture", str(picture), "--output", str(numbers)]
    assert main(flags) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in out[2:]] == [
        "always, 3 times",
        "never",
        "advised",
        "knowing which can succeed",
    ]
    assert picture.read_text().startswith("<svg ")
    assert '"wasted_by_reason"' in numbers.read_text()


@pytest.mark.parametrize("flags", [["--jobs", "0"], ["--seeds", "x"]])
def test_wrong_flags(flags):
    with pytest.raises(SystemExit):
        main(flags)
