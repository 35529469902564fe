"""The systemd collector, and its D-Bus: against a scripted bus, and against dbus-daemon itself."""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from hardware_cases import collected as collect_all
from hardware_cases import only
from peerwatch_exporter.collectors.systemd import SystemdCollector
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.dbus_call import DbusConnection, DbusError
from peerwatch_exporter.sources.host.queries import HostQueries
from peerwatch_exporter.sources.host.systemd import Unit, Units, units

NOWHERE = Paths(*[Path("nowhere")] * 3)


def collect(found: Units):
    sources = Sources(NOWHERE, queries=HostQueries(units=lambda _names: found))
    return collect_all(SystemdCollector(ExporterConfig(), sources))


def aligned(data: bytes, size: int) -> bytes:
    return data + b"\0" * (-len(data) % size)


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode() + b"\0"


def row(name: str, load: str, active: str) -> bytes:
    """Return a unit as systemd writes it: (ssssssouso)."""
    data = b""
    for value in (name, "A unit", load, active, active, "", "/org/u"):
        data = aligned(data, 4) + text(value)
    data = aligned(data, 4) + struct.pack("<I", 0)
    return aligned(data + text(""), 4) + text("/")


def rows(*units_of: tuple[str, str, str]) -> bytes:
    data = b""
    for unit in units_of:
        data = aligned(data, 8) + row(*unit)
    return struct.pack("<II", len(data), 0) + data


def message(kind: int, serial: int, signature: str, body: bytes, error: str = "") -> bytes:
    fields = bytes([5, 1]) + b"u\0" + struct.pack("<I", serial)
    if error:
        fields = aligned(fields, 8) + bytes([4, 1]) + b"s\0" + text(error)
    if signature:
        fields = aligned(fields, 8) + bytes([8, 1]) + b"g\0"
        fields += bytes([len(signature)]) + signature.encode() + b"\0"
    head = struct.pack("<cBBBIII", b"l", kind, 0, 1, len(body), 1000 + serial, len(fields))
    return aligned(head + fields, 8) + body


LIST = "a(ssssssouso)"
HELLO = message(2, 1, "s", text(":1.7"))
# Nobody asked for it; it comes between request and answer.
SIGNAL = message(4, 0, "s", text("NameAcquired"))


@contextlib.contextmanager
def bus(path: Path, *answers: bytes, greeting: bytes = b"OK 1234\r\n"):
    """A bus that answers each request with the next of these bytes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen(1)

        def serve():
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(greeting)
                for answer in answers:
                    peer.recv(65536)
                    peer.sendall(answer)
                # Until the client has read all and goes.
                while peer.recv(65536):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        thread.join(60)


def test_failed_and_named_units_are_read_past_signals(tmp_path):
    failed = rows(
        ("nvidia-fabricmanager.service", "loaded", "failed"), ("a.service", "loaded", "failed")
    )
    named = rows(
        ("nvidia-fabricmanager.service", "loaded", "failed"),
        ("chronyd.service", "loaded", "active"),
        ("slurmd.service", "not-found", "inactive"),
    )
    # The client sends BEGIN and Hello in two pieces; the scripted bus takes either as a request.
    with bus(
        tmp_path / "bus",
        HELLO + SIGNAL + message(2, 2, LIST, failed) + message(2, 3, LIST, named),
    ) as path:
        found = units(path, ["chronyd.service"], timeout_seconds=60)

    assert ("nvidia-fabricmanager.service", "a.service") == tuple(u.name for u in found.failed)
    assert (
        Unit("nvidia-fabricmanager.service", "loaded", "failed"),
        Unit("chronyd.service", "loaded", "active"),
    ) == found.named


def test_a_node_without_systemd_on_its_bus_has_no_data(tmp_path):
    refusal = message(
        3, 2, "s", text("not there"), error="org.freedesktop.DBus.Error.ServiceUnknown"
    )
    with (
        bus(tmp_path / "bus", HELLO + refusal) as path,
        pytest.raises(NoData, match="no systemd on the bus"),
    ):
        units(path, [], timeout_seconds=60)


def test_a_bus_that_refuses_the_user_is_a_failure_that_says_so(tmp_path):
    with (
        bus(tmp_path / "bus", greeting=b"REJECTED EXTERNAL\r\n") as path,
        pytest.raises(DbusError, match="refuses user"),
    ):
        units(path, [], timeout_seconds=60)


@pytest.mark.parametrize(
    "answer",
    [
        HELLO + message(2, 2, LIST, struct.pack("<II", 4096, 0)),
        HELLO + struct.pack("<cBBBIII", b"l", 2, 0, 1, 2**31, 1, 0),
        HELLO + struct.pack("<cBBBIII", b"B", 2, 0, 1, 0, 1, 0),
        HELLO + message(2, 2, "s", text("no list")),
        HELLO + message(2, 2, "a(s)", struct.pack("<II", 6, 0) + text("a")),
        HELLO + message(2, 2, "d", b"12345678"),
        HELLO + message(2, 2, "a(", b""),
    ],
)
def test_nonsense_of_the_bus_is_an_error_and_never_another(tmp_path, answer):
    with bus(tmp_path / "bus", answer) as path, pytest.raises(DbusError):
        units(path, [], timeout_seconds=60)


def test_a_bus_that_does_not_answer_costs_no_more_than_its_time(tmp_path):
    with bus(tmp_path / "bus", greeting=b"") as path, pytest.raises(TimeoutError):
        units(path, [], timeout_seconds=0.2)


def test_no_bus_is_no_data(tmp_path):
    with pytest.raises(NoData, match="Nobody listens"):
        units(tmp_path / "none", [], timeout_seconds=1)


@pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="dbus-daemon is not on PATH")
def test_the_genuine_bus_understands_the_client(tmp_path):
    path = tmp_path / "bus"
    command = ["dbus-daemon", "--session", "--nofork", "--print-address=1"]
    with subprocess.Popen(
        [*command, f"--address=unix:path={path}"], stdout=subprocess.PIPE
    ) as daemon:
        try:
            assert daemon.stdout is not None
            daemon.stdout.readline()
            name = "org.freedesktop.DBus"
            with DbusConnection(path, timeout_seconds=60) as connection:
                (names,) = connection.call(name, "/org/freedesktop/DBus", name, "ListNames")
                with pytest.raises(DbusError, match="InvalidArgs"):
                    connection.call(name, "/org/freedesktop/DBus", name, "ListNames", ["x", "yy"])
            with pytest.raises(NoData, match="no systemd on the bus"):
                units(path, ["a.service"], timeout_seconds=60)
        finally:
            daemon.terminate()

    assert name in names


def test_named_services_and_failed_units_are_published():
    samples = collect(
        Units(
            (
                Unit("nvidia-fabricmanager.service", "loaded", "failed"),
                Unit("x.mount", "loaded", "failed"),
            ),
            (
                Unit("nvidia-fabricmanager.service", "loaded", "failed"),
                Unit("nvidia-persistenced.service", "loaded", "activating"),
            ),
        )
    )

    assert {(): 2} == only(samples, "host_systemd_failed_units")
    assert {
        ("nvidia-fabricmanager.service",): 1,
        ("x.mount",): 1,
        ("nvidia-persistenced.service",): 0,
    } == only(samples, "host_systemd_unit_failed")
    assert {
        ("nvidia-fabricmanager.service",): 0,
        ("nvidia-persistenced.service",): 1,
    } == only(samples, "host_systemd_unit_active")
