"""What NVML says of GPUs that are not well."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from peerwatch_checks.check import Context, Options, Outcome, Skip
from peerwatch_checks.checks.host.gpu_health import gpu_health

GPUS = 4


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A driver of four GPUs that are well; ``bad`` says what is other, by GPU."""
    bad = SimpleNamespace(errors={}, rows={}, links={}, lost=set(), begin=None)

    def begin() -> None:
        if bad.begin is not None:
            raise bad.begin

    def handle(index: int) -> int:
        if index in bad.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    def link_state(index: int, link: int) -> int:
        if link >= 18:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(link < bad.links.get(index, 18))

    def retired(_index: int) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    functions: dict[str, Any] = {
        "nvmlInit": begin,
        "nvmlDeviceGetCount": lambda: GPUS,
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlDeviceGetName": lambda _index: "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetTotalEccErrors": lambda index, _type, _counter: bad.errors.get(index, 0),
        "nvmlDeviceGetRemappedRows": lambda index: bad.rows.get(index, (0, 0, 0, 0)),
        "nvmlDeviceGetRetiredPagesPendingStatus": retired,
        "nvmlDeviceGetNvLinkState": link_state,
    }
    for name, function in functions.items():
        monkeypatch.setattr(pynvml, name, function)
    return bad


def run(gpus: tuple[int, ...] | None = None) -> dict[str, Outcome]:
    found = gpu_health(Context(Options(), "n1", Path(), 60.0, gpus=gpus))
    return {each.device: each for each in found}


def test_gpus_that_are_well(driver: SimpleNamespace) -> None:
    (found,) = run().values()
    assert ("pass", "4 GPUs answer") == (found.status, found.message[:13])


@pytest.mark.parametrize(
    ("what", "value", "device", "severity", "says"),
    [
        ("errors", 3, "gpu 2 uncorrectable_ecc", "high", "counted 3 uncorrectable"),
        ("rows", (0, 1, 0, 1), "gpu 2 row_remap_failed", "high", "could not replace"),
        ("rows", (0, 1, 1, 0), "gpu 2 gpu_reset_pending", "low", "when it is next reset"),
        ("links", 17, "gpu 2 nvlink_errors", "high", "has 17 NVLinks up, 3 GPUs like it have 18"),
    ],
)
def test_what_is_not_well_is_named(
    driver: SimpleNamespace, what: str, value: object, device: str, severity: str, says: str
) -> None:
    getattr(driver, what)[2] = value
    ((name, found),) = run().items()
    assert (device, "fail", severity) == (name, found.status, found.severity)
    assert says in found.message
    # In the prolog of a job that has other GPUs it is not its fault.
    assert ["pass"] == [each.status for each in run((0, 1)).values()]


def test_a_gpu_that_is_lost(driver: SimpleNamespace) -> None:
    driver.lost = {1}
    ((name, found),) = run().items()
    assert ("gpu 1", "fail") == (name, found.status)
    assert "does not answer" in found.message


def test_where_only_bridges_join_gpus_no_link_is_missing(driver: SimpleNamespace) -> None:
    driver.links = {0: 12, 1: 12, 2: 0, 3: 0}
    assert ["pass"] == [each.status for each in run().values()]


def test_what_is_not_known_is_no_fault(driver: SimpleNamespace) -> None:
    driver.begin = pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    assert ["error"] == [each.status for each in run().values()]
    driver.begin = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    with pytest.raises(Skip, match="libnvidia-ml"):
        run()
    driver.begin = None
    with pytest.raises(Skip, match=r"None of the GPUs \[9\]"):
        run((9,))
