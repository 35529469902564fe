"""The collectors of the host: memory controllers, hung tasks, TCP queues, floods of devices."""

from __future__ import annotations

import pytest

from fake_ethtool import FakeEthtool
from hardware_cases import FakeClock, only
from peerwatch_exporter.collectors.cpu import CpuCollector
from peerwatch_exporter.collectors.disk import DiskCollector
from peerwatch_exporter.collectors.edac import EdacCollector
from peerwatch_exporter.collectors.memory import MemoryCollector
from peerwatch_exporter.collectors.network import NetworkCollector
from peerwatch_exporter.collectors.pressure import PressureCollector
from peerwatch_exporter.collectors.tasks import TasksCollector
from peerwatch_exporter.collectors.tcp import TcpCollector
from peerwatch_exporter.errors import NoData, PartialData
from peerwatch_exporter.settings.config import ExporterConfig, ScopeConfig
from peerwatch_exporter.sources import Sources
from peerwatch_exporter.sources.host.access import Paths
from peerwatch_exporter.sources.host.process_files import read_file
from peerwatch_exporter.sources.host.processes import ProcessTable
from procfs_tree import ProcTree

DISK_LINE = "8 0 {} 1 0 2 3 4 0 6 7 0 9000 1\n"
INTERFACE_LINE = "  {}: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n"


@pytest.fixture
def proc(tmp_path):
    return ProcTree(tmp_path / "proc").machine(disks=DISK_LINE.format("sda"))


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sources(tmp_path, clock):
    paths = Paths(tmp_path / "proc", tmp_path / "sys", tmp_path / "kmsg")
    return Sources(paths, clock=clock, monotonic=clock, ethtool=FakeEthtool())


def published(collector):
    """Return the samples by (metric, label values), and PartialData if it was raised."""
    samples = {}
    try:
        for family in collector.collect():
            for labels, value in family.rows:
                samples[family.spec.name, *labels] = value
    except PartialData as error:
        return samples, error
    return samples, None


def controller(tmp_path, name, **counts):
    folder = tmp_path / "sys/devices/system/edac/mc" / name
    folder.mkdir(parents=True)
    for file, text in counts.items():
        (folder / file).write_text(f"{text}\n")


def test_memory_errors_by_controller_and_severity(tmp_path, sources):
    controller(tmp_path, "mc0", ce_count=12, ue_count=0)
    controller(tmp_path, "mc11", ce_count="N/A", ue_count=2)
    controller(tmp_path, "power", ce_count=99)

    assert {
        ("host_edac_errors_total", "mc0", "corrected"): 12,
        ("host_edac_errors_total", "mc0", "uncorrected"): 0,
        ("host_edac_errors_total", "mc11", "uncorrected"): 2,
    } == published(EdacCollector(ExporterConfig(), sources))[0]


def test_machine_without_memory_controllers_has_no_data(tmp_path, sources):
    with pytest.raises(NoData, match="devices/system/edac/mc"):
        published(EdacCollector(ExporterConfig(), sources))
    controller(tmp_path, "power")
    with pytest.raises(NoData):
        published(EdacCollector(ExporterConfig(), sources))


def test_flood_of_memory_controllers_stays_bounded(tmp_path, sources):
    for number in range(300):
        controller(tmp_path, f"mc{number}", ce_count=1, ue_count=1)

    assert 256 == len(published(EdacCollector(ExporterConfig(), sources))[0])


HOST_COLLECTORS = {
    "cpu": CpuCollector,
    "disk": DiskCollector,
    "memory": MemoryCollector,
    "network": NetworkCollector,
    "pressure": PressureCollector,
    "tcp": TcpCollector,
}


@pytest.mark.parametrize(
    ("name", "file", "cut", "lost"),
    [
        ("memory", "meminfo", "MemAvailable:", {"host_memory_available_bytes"}),
        ("memory", "meminfo", "MemTotal:", {"host_memory_total_bytes"}),
        ("tcp", "net/tcp", None, {"host_tcp_send_queue_bytes", "host_tcp_receive_queue_bytes"}),
        ("tcp", "net/netstat", None, {"host_tcp_timeouts_total"}),
        (
            "tcp",
            "net/snmp",
            None,
            {"host_tcp_retransmitted_segments_total", "host_tcp_sent_segments_total"},
        ),
        ("cpu", "stat", "ctxt", {"host_context_switches_total"}),
        ("cpu", "stat", "btime", {"host_boot_time_seconds"}),
        ("cpu", "loadavg", None, {"host_load1"}),
    ],
)
def test_each_value_stands_alone(proc, sources, name, file, cut, lost):
    make = HOST_COLLECTORS[name]
    before, _ = published(make(ExporterConfig(), sources))
    path = proc.root / file
    if cut is None:
        path.unlink()
    else:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith(cut)))
    after, said = published(make(ExporterConfig(), sources))

    # The kernel of the tree may count what not every kernel does.
    optional = {"host_tcp_syn_retransmissions_total"}
    gone = {key[0] for key in before} - {key[0] for key in after}
    assert lost == gone - optional
    assert said is not None
    assert str(said)


@pytest.mark.parametrize(
    ("name", "file", "metric"),
    [
        ("disk", "diskstats", "host_disk_read_bytes_total"),
        ("network", "net/dev", "host_network_receive_bytes_total"),
    ],
)
def test_garbled_line_costs_its_own_device(proc, sources, name, file, metric):
    make = HOST_COLLECTORS[name]
    before, _ = published(make(ExporterConfig(), sources))
    proc.write(file, (proc.root / file).read_text() + "8 1 broken: no numbers here\n")
    after, said = published(make(ExporterConfig(), sources))

    assert before == after
    assert any(key[0] == metric for key in after)
    assert "no numbers here" in str(said)


def test_garbled_pressure_costs_its_own_resource(proc, sources):
    proc.machine(pressure=True)
    proc.write("pressure/io", "nonsense\n")
    after, said = published(PressureCollector(ExporterConfig(), sources))

    assert {"cpu", "memory"} == {key[1] for key in after}
    assert "pressure/io" in str(said)


def test_uninterruptible_and_hung_tasks_are_counted(proc, sources):
    for pid, state in ((1, "S"), (2, "D"), (3, "R"), (4, "D"), (5, "Z")):
        proc.process(pid, state=state)
    proc.write("sys/kernel/hung_task_detect_count", "7\n")

    assert {("host_uninterruptible_tasks",): 2, ("host_hung_tasks_total",): 7} == published(
        TasksCollector(ExporterConfig(), sources)
    )[0]


def test_kernel_that_does_not_count_hung_tasks_leaves_them_out(proc, sources):
    proc.process(1)

    assert {("host_uninterruptible_tasks",): 0} == published(
        TasksCollector(ExporterConfig(), sources)
    )[0]


def test_hung_tasks_are_the_machine_s_not_some_processes(proc, sources):
    config = ExporterConfig(scope=ScopeConfig(kind="processes", environment={"A": "1"}))
    with pytest.raises(NoData, match="scope"):
        published(TasksCollector(config, sources))


def test_tasks_that_wait_for_storage_are_counted(proc, sources):
    text = (proc.root / "stat").read_text().replace("procs_blocked 0", "procs_blocked 5")
    proc.write("stat", text)
    samples, _ = published(CpuCollector(ExporterConfig(), sources))

    assert 5 == samples[("host_blocked_tasks",)]


def test_old_kernel_without_blocked_tasks_leaves_them_out(proc, sources):
    text = (proc.root / "stat").read_text().replace("procs_blocked 0\n", "")
    proc.write("stat", text)
    samples, _ = published(CpuCollector(ExporterConfig(), sources))

    assert ("host_blocked_tasks",) not in samples
    assert 2 == samples[("host_cpus",)]


def queues(samples):
    return samples[("host_tcp_send_queue_bytes",)]


@pytest.mark.parametrize(("cost", "fresh_after"), [(0.0, 0), (0.005, 5)], ids=["cheap", "dear"])
def test_sockets_are_listed_as_often_as_it_is_cheap(proc, sources, clock, cost, fresh_after):
    """5 ms of CPU time, at 0.1 % of a CPU, is every 5 s."""
    cpu = FakeClock(0)

    def spent():
        cpu.now += cost
        return cpu.now

    collector = TcpCollector(ExporterConfig(), sources, cpu_clock=spent)
    assert 0x300 == queues(published(collector)[0])
    for name in ("net/tcp", "net/tcp6"):
        text = (proc.root / name).read_text()
        proc.write(name, text.replace("00000100:", "00000500:").replace("00000200:", "00000000:"))
    waited = 0
    while queues(published(collector)[0]) != 0x500:
        clock.now += 1
        waited += 1
        assert waited < 60

    assert fresh_after == waited


def test_connection_requests_sent_again_are_counted_where_the_kernel_does(proc, sources, clock):
    collector = TcpCollector(ExporterConfig(), sources)
    name = ("host_tcp_syn_retransmissions_total",)
    assert name not in published(collector)[0]
    proc.write("net/netstat", "TcpExt: TCPTimeouts TCPSynRetrans\nTcpExt: 17 4\n")
    clock.now += 5

    assert 4 == published(collector)[0][name]


def test_flood_of_interfaces_stays_bounded_and_keeps_the_first(proc, sources):
    lines = "".join(INTERFACE_LINE.format(f"veth{number}") for number in range(100_000))
    proc.write("net/dev", "head\nhead\n" + INTERFACE_LINE.format("eth0") + lines)
    samples, error = published(NetworkCollector(ExporterConfig(), sources))
    received = only(samples, "host_network_receive_bytes_total")

    assert 256 == len(received)
    assert 1 == received[("eth0",)]
    assert 8 * 256 == len(samples)
    assert "first 256" in str(error)


def test_flood_of_disks_stays_bounded(proc, sources):
    proc.write("diskstats", "".join(DISK_LINE.format(f"dm-{number}") for number in range(5000)))
    samples, error = published(DiskCollector(ExporterConfig(), sources))

    assert 256 == len(only(samples, "host_disk_read_bytes_total"))
    assert "first 256" in str(error)


def test_alias_of_an_interface_keeps_its_colon(proc, sources):
    proc.write("net/dev", "head\nhead\n" + INTERFACE_LINE.format("eth0:1"))
    samples, _ = published(NetworkCollector(ExporterConfig(), sources))

    assert 1 == samples["host_network_receive_bytes_total", "eth0:1"]


def test_sleeping_processes_are_asked_less_and_less_often(proc, clock):
    """The watched and the busy every second, a new and a gone one at once."""
    for pid in (1, 2, 3):
        proc.process(pid)
    read = []

    def recording(path):
        if path.endswith("/stat"):
            read.append(int(path.split("/")[-2]))
        return read_file(path)

    table = ProcessTable(proc.root, monotonic=clock, read=recording)
    asked = dict.fromkeys((1, 2, 3), 0)
    for second in range(40):
        clock.now += 1
        proc.process(2, user=second)
        table.watch([3])
        read.clear()
        processes = table.snapshot()
        assert second / 100 == processes[2].user_seconds
        for pid in read:
            asked[pid] += 1

    # After 0, 1, 3, 7, 15 and 30 s, and once more to see that it sleeps.
    assert {1: 7, 2: 40, 3: 40} == asked
    proc.end(2)
    proc.process(4)
    clock.now += 1
    assert {1, 3, 4} == table.snapshot().keys()


def test_process_that_wakes_is_seen_within_half_a_minute(proc, clock):
    proc.process(1)
    table = ProcessTable(proc.root, monotonic=clock)
    for _ in range(100):
        clock.now += 1
        table.snapshot()
    proc.process(1, state="D")
    waited = 0
    while table.snapshot()[1].state != "disk_sleep":
        clock.now += 1
        waited += 1

    assert waited <= 30
