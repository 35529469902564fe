"""A healthy log matches nothing, whatever words are in it."""

from __future__ import annotations

import pytest

from peerwatch_common.signatures.matcher import LogMatcher
from peerwatch_common.signatures.prefilter import HEALTHY
from signature_tables import shipped_signatures, shipped_table

SIGNATURES = shipped_signatures()
TABLES = {log: shipped_table(log) for log in ("job", "kernel")}


def ids_of(log: str, text: bytes) -> list[str]:
    matcher = LogMatcher(TABLES[log])
    return [event.signature.id for event in matcher.feed(text) + matcher.finish()]


def healthy(lines: int) -> bytes:
    sample = HEALTHY.read_bytes().splitlines()
    return b"\n".join(sample[number % len(sample)] for number in range(lines))


def test_a_healthy_log_of_megabytes_matches_nothing() -> None:
    text = healthy(30_000)
    assert len(text) > 5_000_000
    assert ids_of("job", text) == []


@pytest.mark.parametrize(
    "line",
    [
        "Killed",
        "Killed                  python train.py",
        "train_error: 0.123  val_error=0.456  error_rate 0.01",
        "num_errors=0 num_failed=0 timeouts=0 retries=0",
        "clip_grad_norm_(parameters, 1.0, error_if_nonfinite=False)",
        "usage: train.py [-h] [--fail-on-error] [--timeout SECONDS] [--nccl-timeout SECONDS]",
        "  --ignore-errors  go on after an error of a worker (default: False)",
        "distributed_timeout_minutes ..................... 10",
        "node1:12:34 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.",
        "node1:12:34 [0] NCCL INFO Connected to proxy localRank 0 -> connection 0x7f",
        "node1:12:34 [0] NCCL INFO Call to ibv_modify_qp failed with 110, retrying 1/5",
        "node1:12:34 [0] NCCL INFO comm 0x55 rank 0 - Abort COMPLETE",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING=1 TORCH_NCCL_TRACE_BUFFER_SIZE=2000",
        "Successfully installed cuda-error-reporter-1.0 timeout-decorator-0.5 exceptiongroup-1.2",
        "Downloading https://example.org/errors/out-of-memory/CUDA-error.html",
        "loss_error_term: 1.2 | oom_score_adj: 0 | signal: 0.3 | process reward: 0.7",
        "UserWarning: Error bars are not shown",
        "Checkpoint of epoch 3: no space between shards",
        "epoch 3: loss is 0.12, nan_count 0, found 0 NaN in gradients",
        "wandb: Network error (ReadTimeout), entering retry loop.",
        "INFO: retrying after KeyError",
        "saved to /data/Traceback/run.txt",
        "GPU 3 temperature 61 C, no ECC errors, NVLink up",
        "[rank3]: heartbeat ok, watchdog enabled, timeout 600000 ms",
    ],
)
def test_misleading_lines_match_nothing(line: str) -> None:
    assert ids_of("job", line.encode() + b"\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03",
        "mlx5_core 0000:3a:00.0: Port module event: module 0, Cable plugged",
        "mlx5_core 0000:d2:00.0 ib4: Link up",
        "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 9): ACCESS_REG(0x805) op_mod(0x1) "
        "failed, status bad operation(0x2), syndrome (0x9a6171), err(-22)",
        "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: errors=remount-ro",
        "mce: CPU0: Thermal monitoring enabled (TM1)",
        "nvme nvme0: 128/0/0 default/read/poll queues",
        "systemd[1]: Finished Load Kernel Module drm.",
        "mlx5_core 0000:3a:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s link",
    ],
)
def test_a_healthy_kernel_log_matches_nothing(line: str) -> None:
    assert ids_of("kernel", line.encode() + b"\n") == []


@pytest.mark.parametrize("log", ["job", "kernel"])
def test_healthy_logs_are_passed_over_by_few_searches(log: str) -> None:
    # Each is one pass over a log; the bound is on their number, which is what speed depends on.
    assert len(TABLES[log].prefilter.triggers) < 80
    selected = TABLES[log].prefilter.lines(healthy(1000))
    assert len(selected) < 150
