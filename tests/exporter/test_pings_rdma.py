"""Pings over RDMA: what rping's output says, what is counted, and what a run may take.

The outputs are of rping of rdma-core 44 over soft RoCE (rdma_rxe of Linux 6.1, in a virtual
machine), but for RDMA_CM_EVENT_UNREACHABLE, which was not seen: there a run took too long instead.
No RDMA hardware has been seen.
"""

import os
import time
from pathlib import Path

import pytest

from peerwatch_exporter.settings.pings import PingsConfig
from peerwatch_exporter.sources.pings.rdma.mesh import RdmaPings
from peerwatch_exporter.sources.pings.rdma.process import run, run_client
from peerwatch_exporter.sources.pings.rdma.rping import (
    EXCHANGES,
    Outcome,
    client_command,
    heard_by_server,
    outcome,
    server_command,
)
from peerwatch_exporter.sources.pings.totals import PingTotals, Target

ANSWERS = b"".join(b"ping data: rdma-ping-%d: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\n" % n for n in range(4))
REFUSED = b"""cma event RDMA_CM_EVENT_REJECTED, error 8
wait for CONNECTED state 4
connect error -1
"""
MEMLOCK = b"""libibverbs: Warning: RLIMIT_MEMLOCK is 0 bytes.
    This will severely limit memory registrations.
recv_buf reg_mr failed
rping_setup_buffers failed: 1
"""
SERVED = b"""port 9500
created cm_id 0x55b77ea81e70
rdma_bind_addr successful
rdma_listen
cma_event type RDMA_CM_EVENT_CONNECT_REQUEST cma_id 0x7f935c000ce0 (child)
child cma 0x7f935c000ce0
accepting client connection request
cma_event type RDMA_CM_EVENT_ESTABLISHED cma_id 0x7f935c000ce0 (child)
ESTABLISHED
cma_event type RDMA_CM_EVENT_DISCONNECTED cma_id 0x7f935c000ce0 (child)
server DISCONNECT EVENT...
wait for RDMA_READ_ADV state 10
"""
DISCONNECTED = b"client DISCONNECT EVENT...\nwait for RDMA_WRITE_ADV state 10\n"


@pytest.mark.parametrize(
    ("output", "timed_out", "state", "reason"),
    [
        (b"No RDMA devices were detected\n", False, "no_device", ""),
        (
            b"failed to create RDMA CM event channel: No such file or directory\n",
            False,
            "no_access",
            "",
        ),
        (MEMLOCK, False, "no_locked_memory", ""),
        (REFUSED, False, "ready", "not_serving"),
        (b"rdma_resolve_route: No such device\n", False, "ready", "not_rdma"),
        (b"rdma_resolve_addr: Network is unreachable\n", False, "ready", "unreachable"),
        (b"cma event RDMA_CM_EVENT_UNREACHABLE, error -110\n", False, "ready", "unreachable"),
        (b"", True, "ready", "timeout"),
        (DISCONNECTED, False, "ready", "broken"),
        (ANSWERS[:60] + DISCONNECTED, False, "ready", "broken"),
        (ANSWERS[:60], True, "ready", "broken"),
        (b"", False, "ready", "other"),
        (b"getaddrinfo failed (Name or service not known)\n", False, "ready", "other"),
    ],
)
def test_each_output_has_its_state_and_reason(output, timed_out, state, reason):
    found = outcome(output, [0.0] * output.count(b"\n"), timed_out=timed_out)
    assert (found.seconds, found.state, found.reason) == (None, state, reason)


def test_round_trips_leave_out_the_connection_and_lines_of_others():
    found = outcome(b"client warns\n" + ANSWERS, [0.0, 5.0, 5.1, 5.2, 5.3], timed_out=False)
    assert found.seconds == pytest.approx(0.1)
    # Printed at the end of one that went well.
    found = outcome(ANSWERS + DISCONNECTED, [5.0, 5.1, 5.2, 5.3, 5.3, 5.3], timed_out=False)
    assert found == Outcome(pytest.approx(0.1))


def test_the_server_takes_what_the_largest_client_sends():
    assert client_command("fd00::7", 9404, 64)[-2:] == ["-a", "fd00::7"]
    # Without -P: it ends after one client.
    server = ["rping", "-s", "-d", "-p", "9404", "-S", "65535", "-a", "10.0.0.7"]
    assert server_command("10.0.0.7", 9404) == server


def test_a_server_says_when_it_listens_and_when_a_client_comes():
    heard = [heard_by_server(line) for line in SERVED.splitlines()]
    assert [each for each in heard if each] == ["listens", "taken"]


class Runs:
    """Answers with the outcomes given, and keeps what was run."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.sizes = []
        self.ports = []

    def __call__(self, command, timeout_seconds):
        self.ports.append(command[command.index("-p") + 1])
        self.sizes.append(command[command.index("-S") + 1])
        return self.outcomes.pop(0)


class Asks:
    """Has answers ready to the request for a server; the port 9411 after them."""

    def __init__(self):
        self.answers = []
        self.closed = 0

    def __call__(self, *_):
        return self

    def ask(self):
        return self.answers.pop(0) if self.answers else 9411

    def close(self):
        self.closed += 1


@pytest.fixture
def asks():
    return Asks()


@pytest.fixture
def made(tmp_path, asks):
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    config = PingsConfig(enabled=True, secret_file=secret, peers=["10.0.0.2"], rdma=True)

    def make(*outcomes):
        totals = PingTotals()
        runs = Runs(*outcomes)
        pings = RdmaPings(config, lambda: ("10.0.0.2",), totals, tuple, run=runs, asker=asks)
        return pings, totals, runs

    return make


def test_nothing_is_counted_before_the_first_answer_or_of_a_peer_that_does_not_serve(made):
    lost, refused = Outcome(None, reason="timeout"), Outcome(None, reason="not_serving")
    pings, totals, runs = made(lost, Outcome(0.001), lost, refused, Outcome(0.002))
    for now in range(5):
        pings.step(float(now))
    counts = list(totals.read().values())
    assert sum(each.sent for each in counts) == 3
    assert sum(each.lost["unknown"] for each in counts) == 1
    assert sum(each.seconds for each in counts) == pytest.approx(0.003)
    assert pings.failures == {("10.0.0.2", "timeout"): 2, ("10.0.0.2", "not_serving"): 1}
    # Both sizes take turns.
    assert sorted(runs.sizes[:2]) == sorted(runs.sizes[2:4]) == ["32768", "64"]
    assert {target.protocol for target in totals.read()} == {"rdma"}
    assert set(runs.ports) == {"9411"}


def test_a_peer_that_gives_no_server_is_not_pinged_and_loses_nothing(made, asks):
    pings, totals, runs = made(Outcome(0.001))
    pings.step(0.0)
    asks.answers = ["no_session", "busy", "not_serving"]
    for now in (1.0, 2.0, 3.0):
        pings.step(now)
    assert len(runs.sizes) == 1
    assert sum(each.sent for each in totals.read().values()) == 1
    reasons = ["no_session", "busy", "not_serving"]
    assert pings.failures == {("10.0.0.2", reason): 1 for reason in reasons}


def test_a_node_that_cannot_ping_loses_nothing_and_is_asked_again_later(made):
    pings, totals, runs = made(Outcome(None, "no_device"), Outcome(0.001))
    for now in (0.0, 1.0, 29.0):
        pings.step(now)
    assert len(runs.sizes) == 1
    assert pings.state == "no_device"
    pings.step(31.0)
    assert pings.state == "ready"
    assert totals.read()
    assert not pings.failures


def test_a_peer_that_is_gone_is_forgotten(made, asks):
    pings, _, _ = made(Outcome(None, reason="timeout"))
    pings.step(0.0)
    assert pings.failures
    pings._partners = tuple
    pings.step(1.0)
    assert not pings.failures
    assert asks.closed == 1


def program(folder: Path, text: str) -> str:
    path = folder / "rping"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_run_sees_each_answer_when_it_comes(tmp_path):
    # A program whose output would come at its end if it were not for a terminal.
    lines = f"for n in range({EXCHANGES}): print(f'ping data: rdma-ping-{{n}}: A'); time.sleep(.2)"
    found = run_client(["python3", "-c", f"import time\n{lines}"], 60.0)
    assert found.state == "ready"
    assert found.reason == ""
    assert found.seconds is not None
    # All at once would be microseconds; a reader that comes late sees a pause shorter than it was.
    assert found.seconds > 0.02


def test_a_run_that_hangs_or_floods_is_ended(tmp_path):
    begun = time.monotonic()
    assert run_client([program(tmp_path, "exec sleep 600")], 0.3).reason == "timeout"
    assert run_client([program(tmp_path, "exec yes")], 60.0).reason == "timeout"
    assert time.monotonic() - begun < 60


def test_a_tool_that_is_missing_or_may_not_be_run_says_so(tmp_path):
    assert run_client([str(tmp_path / "none")], 1.0).state == "tool_missing"
    path = tmp_path / "rping"
    path.write_text("no program")
    assert run_client([str(path)], 1.0).state == "no_access"


def test_a_run_ends_when_it_is_to_and_its_lines_are_heard(tmp_path):
    lines = []
    command = [program(tmp_path, "echo $$; echo rdma_listen; exec sleep 600")]
    found = run(command, 60.0, lines.append, lambda: len(lines) == 2)
    assert not found.timed_out
    assert lines[1:] == [b"rdma_listen"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(lines[0]), 0)


def test_targets_of_rdma_do_not_mix_with_others():
    totals = PingTotals()
    totals.answered(Target("10.0.0.2", "rdma", "small"), 0.1)
    totals.answered(Target("10.0.0.2", "udp", "small"), 0.2)
    assert [each.seconds for each in totals.read().values()] == [0.1, 0.2]
