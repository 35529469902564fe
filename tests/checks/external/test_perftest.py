"""What ``ib_write_bw`` prints, and the check of RDMA devices that runs it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from peerwatch_checks.check import Context, Outcome, Skip
from peerwatch_checks.checks.host.rdma_loopback import (
    RdmaLoopbackOptions,
    active_devices,
    rdma_loopback,
)
from peerwatch_checks.external.perftest import Bandwidth, average, write_bandwidth

PRINTED = """
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 local address: LID 0x01 QPN 0x0127 PSN 0x8bf87e RKey 0x1fff00 VAddr 0x007f1c5c
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 8388608    5000             392.66             380.61\t\t   0.005672
---------------------------------------------------------------------------------------
"""


def test_the_average_is_the_fourth_column() -> None:
    assert average(PRINTED) == 380.61
    assert average("Couldn't connect to 127.0.0.1:18515") is None
    assert average("") is None


def program(folder: Path, client: str, server: str = "exec sleep 1000") -> str:
    path = folder / "ib_write_bw"
    # The client's last argument is the address.
    path.write_text(
        f'#!/bin/sh\nfor last; do :; done\n[ "$last" = 127.0.0.1 ] || {{ {server}; }}\n{client}\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_server_and_client_meet_and_the_server_is_ended(tmp_path: Path) -> None:
    (tmp_path / "printed").write_text(PRINTED)
    ran = program(tmp_path, f"cat {tmp_path}/printed", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    found = write_bandwidth(ran, "mlx5_0", "mlx5_1", port=18515, seconds=60.0)
    assert found == Bandwidth(380.61)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@pytest.mark.parametrize(
    ("client", "server", "reason"),
    [
        ("echo 'Failed to modify QP to RTR' >&2; exit 1", "exec sleep 1000", "modify QP"),
        ("exit 3", "exec sleep 1000", "ended with 3"),
        ("exec sleep 1000", "exec sleep 1000", "no answer"),
        ("exit 0", "exit 7", "server on mlx5_0 ended with 7"),
    ],
)
def test_a_failure_says_why(client: str, server: str, reason: str, tmp_path: Path) -> None:
    ran = program(tmp_path, client, server)
    found = write_bandwidth(ran, "mlx5_0", "mlx5_0", port=18515, seconds=5.0)
    assert found.gigabits is None
    assert reason in found.failure


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    for index in range(8):
        port = tmp_path / "class" / "infiniband" / f"mlx5_{index}" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n" if index < 5 else "1: DOWN\n")
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    return tmp_path


def run(sysfs: Path, slow: dict[str, float | None]) -> dict[str, Outcome]:
    def measure(_program: str, server: str, client: str, **_: object) -> Bandwidth:
        values = [slow.get(name, 380.0) for name in (server, client)]
        least = [value for value in values if value is not None]
        return Bandwidth(min(least)) if len(least) == 2 else Bandwidth(None, "QP error")

    context = Context(RdmaLoopbackOptions(), "n1", sysfs, 60.0, sysfs=sysfs)
    found = rdma_loopback(context, find=lambda name: name, measure=measure)
    return {each.device: each for each in found}


def test_devices_that_are_down_are_not_tested(sysfs: Path) -> None:
    assert active_devices(sysfs) == {f"mlx5_{index}": 400.0 for index in range(5)}
    found = run(sysfs, {})
    assert len(found) == 10
    assert {"pass"} == {each.status for each in found.values()}


def test_a_slow_device_fails_by_itself_and_with_its_neighbours(sysfs: Path) -> None:
    found = run(sysfs, {"mlx5_2": 180.0})
    assert ["mlx5_1 to mlx5_2", "mlx5_2", "mlx5_2 to mlx5_3"] == sorted(
        device for device, each in found.items() if each.status == "fail"
    )


def test_all_slow_fall_below_their_rate(sysfs: Path) -> None:
    # With five of them the peers agree; the floor of the rate speaks for a single one.
    for index in range(1, 5):
        port = sysfs / "class" / "infiniband" / f"mlx5_{index}" / "ports" / "1"
        (port / "state").write_text("1: DOWN\n")
    found = run(sysfs, {"mlx5_0": 180.0})
    assert found["mlx5_0"].status == "fail"
    assert found["mlx5_0"].expected == pytest.approx(340.0)


def test_a_device_that_fails_is_bad_only_if_others_work(sysfs: Path) -> None:
    assert run(sysfs, {"mlx5_2": None})["mlx5_2"].status == "fail"
    everything: dict[str, float | None] = dict.fromkeys(f"mlx5_{i}" for i in range(8))
    assert {"error"} == {each.status for each in run(sysfs, everything).values()}


def test_no_device_is_a_skip(tmp_path: Path) -> None:
    with pytest.raises(Skip, match="active port"):
        run(tmp_path, {})
