"""What travels between the driver process and its parent: frames, families, settings, marks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_exporter.collector import all_metrics, registrations
from peerwatch_exporter.driver import wire
from peerwatch_exporter.driver.progress_marker import (
    FACTS,
    LIBRARY,
    SharedProgressMarker,
    open_progress_marker,
)
from peerwatch_exporter.driver.wire import (
    FamilyPacker,
    FamilyUnpacker,
    Inbox,
    WireError,
    pack,
)
from peerwatch_exporter.settings.config import ExporterConfig
from peerwatch_exporter.settings.plain import from_plain, to_plain
from peerwatch_exporter.sources.kernel.deduplication import EventDeduplicator

CATALOG = all_metrics()

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.lists(st.tuples(st.text(), PLAIN), max_size=5), st.integers(1, 50))
def test_messages_arrive_whole_however_they_are_cut(messages, size):
    stream = b"".join(pack(message) for message in messages)
    inbox = Inbox()
    got = [
        m for start in range(0, len(stream), size) for m in inbox.feed(stream[start : start + size])
    ]

    assert messages == got


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_waited_for(data):
    with contextlib.suppress(WireError):
        assert [] == Inbox().feed(data)


@given(st.binary(min_size=1, max_size=3), st.integers(0, 200))
def test_damaged_frame_is_refused_or_waited_for(damage, place):
    frame = bytearray(pack(("answer", "gpu", [1.0] * 20)))
    place %= len(frame)
    frame[place : place + len(damage)] = damage
    if bytes(frame) != pack(("answer", "gpu", [1.0] * 20)):
        with contextlib.suppress(WireError):
            assert [] == Inbox().feed(bytes(frame))


def test_too_long_frame_is_refused_before_it_comes():
    header = wire._HEADER.pack(b"PWd1", wire.MAX_MESSAGE_BYTES + 1, 0)
    with pytest.raises(WireError):
        Inbox().feed(header)


def filled(*rows):
    family = CATALOG["gpu_power_watts"].family()
    family.rows = [((gpu, f"GPU-{gpu}"), value) for gpu, value in rows]
    return family


def test_families_arrive_as_they_were_sent():
    packer, unpacker = FamilyPacker(), FamilyUnpacker()
    for rows in ([("0", 1.5), ("1", 2)], [("0", 3)], [("0", 4)], [("1", 2**53)]):
        (got,) = unpacker.unpack("gpu", packer.pack("gpu", [filled(*rows)]))

        assert filled(*rows).rows == got.rows
        assert CATALOG["gpu_power_watts"] is got.spec


def test_labels_travel_once():
    packer = FamilyPacker()
    first, second, other = (
        packer.pack("gpu", [filled(*rows)])[0][1] for rows in ([("0", 1)], [("0", 2)], [("1", 2)])
    )

    assert [("0", "GPU-0")] == first
    assert second is None
    assert [("1", "GPU-1")] == other


def test_family_that_did_not_change_is_the_same_object():
    packer, unpacker = FamilyPacker(), FamilyUnpacker()
    first, same, other, again = (
        unpacker.unpack("gpu", packer.pack("gpu", [filled(("0", value))]))[0]
        for value in (1.5, 1.5, 2.5, 1.5)
    )

    assert first is same
    assert [[(("0", "GPU-0"), 2.5)], [(("0", "GPU-0"), 1.5)]] == [other.rows, again.rows]


def test_of_a_family_that_is_still_the_same_object_only_the_name_travels():
    packer, unpacker = FamilyPacker(), FamilyUnpacker()
    kept = filled(("0", 1.5))
    first = unpacker.unpack("gpu", packer.pack("gpu", [kept]))
    packed = packer.pack("gpu", [kept])

    assert [("gpu_power_watts", None, None)] == packed
    assert first[0] is unpacker.unpack("gpu", packed)[0]
    (other,) = unpacker.unpack("gpu", packer.pack("gpu", [filled(("0", 2.5))]))
    assert [(("0", "GPU-0"), 2.5)] == other.rows


def test_family_without_samples_is_left_out():
    assert [] == FamilyPacker().pack("gpu", [filled()])


@pytest.mark.parametrize(
    "packed",
    [
        None,
        [()],
        [("no_such_metric", [], b"")],
        [("gpu_power_watts", None, b"")],
        [("gpu_power_watts", [("0",)], b"\0" * 8)],
        [("gpu_power_watts", [["0", "uuid"]], b"\0" * 8)],
        [("gpu_power_watts", [("0", "uuid")], b"\0" * 7)],
        [("gpu_power_watts", [("0", "uuid")], b"\0" * 16)],
        [("gpu_power_watts", 7, b"")],
    ],
)
def test_what_is_no_family_is_refused(packed):
    with pytest.raises(WireError):
        FamilyUnpacker().unpack("gpu", packed)


def test_settings_arrive_with_their_types():
    config = ExporterConfig.model_validate(
        {
            "nvlink": {"per_link": False},
            "xid": {"severity": {109: "hardware"}},
            "scope": {"kind": "processes", "environment": {"NODE": "a"}},
        }
    )
    there = from_plain(to_plain(config))

    assert config.nvlink.per_link is there.nvlink.per_link
    assert {109: "hardware"} == there.xid.severity
    assert {"NODE": "a"} == there.scope.environment
    assert Path("/proc") == there.paths.procfs
    assert there.gpu.expected_count is None
    assert config.deadline_seconds == there.deadline_seconds


def test_setting_that_cannot_travel_is_refused():
    with pytest.raises(TypeError, match="object"):
        to_plain(object())


def test_mark_is_seen_by_the_other_side():
    shared = SharedProgressMarker()
    assert LIBRARY == shared.read().phase
    mark = open_progress_marker(shared.descriptor)
    mark.enter(FACTS)
    mark.at(7)
    first = shared.read()
    mark.at(7)
    second = shared.read()
    mark.at(-1)

    assert (FACTS, 7) == first[:2] == second[:2]
    assert first != second
    assert shared.read().gpu is None
    mark.at(1000)
    assert shared.read().gpu is None
    shared.close()
    assert -1 == shared.descriptor


def test_main_process_never_imports_the_library():
    script = (
        "import sys\n"
        "from peerwatch_exporter.collector import registrations\n"
        "import peerwatch_exporter.driver.manager, peerwatch_exporter.settings.config\n"
        "registrations()\n"
        "print(sorted({'pynvml'} & sys.modules.keys()))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert "[]\n" == done.stdout


def test_driver_process_imports_nothing_heavy():
    modules = [
        registration.factory.__module__
        for registration in registrations().values()
        if registration.process == "driver"
    ]
    script = (
        "import sys\n"
        "import peerwatch_exporter.driver.__main__\n"
        f"for name in {modules!r}: __import__(name)\n"
        "heavy = {'pydantic', 'prometheus_client', 'http', 'yaml', 'argparse', 'asyncio', 'ssl'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert "[]\n" == done.stdout


def test_main_process_keeps_what_reads_settings_and_logs_out_of_its_memory():
    script = (
        "import sys\n"
        "import peerwatch_exporter.__main__\n"
        "import peerwatch_exporter.process.service\n"
        "from peerwatch_exporter.collector import registrations\n"
        "registrations()\n"
        "heavy = {'pydantic', 'prometheus_client', 'yaml', 'asyncio', 'numpy'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert "[]\n" == done.stdout


def test_driver_process_refuses_to_be_started_by_hand():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "peerwatch_exporter.driver"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert (1, "") == (done.returncode, done.stdout)
    assert "not by hand" in done.stderr


def count(*reports):
    events = EventDeduplicator()
    return sum(events.is_new("x", source, at) for source, at in reports)


@pytest.mark.parametrize(
    ("expected", "reports"),
    [
        (1, [("a", 0), ("b", 0.9)]),
        (1, [("b", 0.9), ("a", 0)]),
        (2, [("a", 0), ("a", 5)]),
        (1, [("a", 0), ("a", 4.9)]),
        (2, [("a", 0), ("b", 0.9), ("a", 6), ("b", 6.9)]),
        (2, [("a", 0), ("a", 6), ("b", 0.9), ("b", 6.9)]),
        (2, [("a", 0), ("b", 20)]),
        (2, [("a", 0), ("b", 0.9), ("b", 0.9), ("a", 5.0)]),
        (2, [("a", 100), ("a", 2)]),
    ],
)
def test_events_of_two_sources(expected, reports):
    assert expected == count(*reports)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 100))))
def test_there_are_never_more_events_than_reports(reports):
    assert min(1, len(reports)) <= count(*reports) <= len(reports)


def test_flood_of_keys_is_bounded():
    events = EventDeduplicator()
    for key in range(5000):
        events.is_new(key, "a", float(key))

    assert len(events._events) <= 1024
