"""The pcie collector: links, errors and presence of GPUs, NICs, NVSwitches and bridges."""

from __future__ import annotations

import pytest

from hardware_cases import case_node, collected, node, only
from pci_tree import GPU, NIC, NVSWITCH, PciFiles
from peerwatch_exporter.errors import NoData
from peerwatch_exporter.sources.host.pci import MAX_FUNCTIONS, PciTree, nearest
from peerwatch_exporter.sources.host.sysfs import Sysfs

SWITCH = "pci0000:15/0000:15:01.0/0000:16:00.0"


@pytest.fixture
def files(tmp_path):
    return PciFiles(tmp_path / "sys")


@pytest.fixture
def one_gpu(files):
    files.add(f"{SWITCH}/0000:17:00.0/0000:18:00.0", GPU)
    return files


def test_narrow_link_shows():
    with case_node("degraded_node") as degraded:
        samples = degraded.collect("pcie")

    assert 8 == samples["pcie_link_width_lanes", "0000:3b:00.0"]
    assert 16 == samples["pcie_link_width_lanes_max", "0000:3b:00.0"]
    assert 16e9 == samples["pcie_link_speed_transfers_per_second", "0000:3b:00.0"]
    assert 32e9 == samples["pcie_link_speed_max_transfers_per_second", "0000:3b:00.0"]


def test_aer_errors_by_type_and_without_double_counting():
    with case_node("h100_node") as h100:
        errors = only(h100.collect("pcie"), "pcie_aer_errors_total")

    assert {
        ("0000:9b:00.0", "correctable", "BadTLP"): 2,
        ("0000:9b:00.0", "correctable", "Timeout"): 1,
        ("0000:3a:00.0", "correctable", "RxErr"): 5,
        ("0000:9a:00.0", "nonfatal", "total"): 3,
    } == {key: value for key, value in errors.items() if value}


def test_garbled_aer_line_costs_only_itself():
    with case_node("degraded_node") as degraded:
        errors = only(degraded.collect("pcie"), "pcie_aer_errors_total")

    first_nic = {key[1:]: value for key, value in errors.items() if key[0] == "0000:18:00.0"}
    assert {("correctable", "RxErr"): 4, ("nonfatal", "total"): 0, ("fatal", "total"): 0} == (
        first_nic
    )


def test_every_bridge_up_to_the_root_port_is_published(one_gpu, tmp_path):
    with node(None, root=tmp_path) as bare:
        samples = bare.collect("pcie")

    assert {
        ("0000:18:00.0", "gpu", "0000:17:00.0", "0x10de", "0x2330", "0"),
        ("0000:17:00.0", "bridge", "0000:16:00.0", "0x1000", "0xc030", "0"),
        ("0000:16:00.0", "bridge", "0000:15:01.0", "0x1000", "0xc030", "0"),
        ("0000:15:01.0", "root_port", "", "0x1000", "0xc030", "0"),
    } == set(only(samples, "pcie_device_info"))
    for name in ("pcie_link_width_lanes", "pcie_device_present"):
        assert 4 == len(only(samples, name)), name


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (GPU, "gpu"),
        (NIC, "nic"),
        (NVSWITCH, "nvswitch"),
        ({**GPU, "class": "0x030000"}, "gpu"),
        ({"class": "0x038000", "vendor": "0x1002", "device": "0x740f"}, "gpu"),
        ({"class": "0x120000", "vendor": "0x1002", "device": "0x74a1"}, "gpu"),
        ({"class": "0x020000", "vendor": "0x1d0f", "device": "0xefa2"}, "nic"),
        # The board's own management processor, a disk, another maker's bridge.
        ({"class": "0x030000", "vendor": "0x1a03", "device": "0x2000"}, None),
        ({"class": "0x010802", "vendor": "0x144d", "device": "0xa824"}, None),
        ({"class": "0x068000", "vendor": "0x8086", "device": "0x0000"}, None),
        ({"class": "", "vendor": "", "device": ""}, None),
    ],
)
def test_kind_follows_class_and_vendor(files, facts, kind):
    bdf = files.add("pci0000:00/0000:00:05.0", facts)
    functions = PciTree(Sysfs(files.root)).functions()

    assert kind == (functions[bdf].kind if bdf in functions else None)


def test_virtual_functions_share_the_link_of_their_physical_one(files, tmp_path):
    physical = files.add("pci0000:17/0000:17:01.0/0000:18:00.0", NIC)
    files.add("pci0000:17/0000:17:01.0/0000:18:00.1", NIC, physfn=physical)
    with node(None, root=tmp_path) as guest:
        info = only(guest.collect("pcie"), "pcie_device_info")

    assert {"0000:18:00.0", "0000:17:01.0"} == {key[0] for key in info}


@pytest.mark.parametrize(
    ("changes", "present"),
    [
        ({"current_link_width": "63", "current_link_speed": "Unknown"}, 0),
        ({"current_link_width": "", "config": b"\xff" * 64}, 0),
        ({"current_link_width": "", "config": b"\xde\x10\x30\x23" + b"\0" * 60}, 1),
        ({"current_link_width": "0", "current_link_speed": "2.5 GT/s PCIe"}, 1),
        ({"current_link_width": "255", "current_link_speed": "Unknown speed"}, 1),
    ],
    ids=["all ones", "refused and all ones", "refused", "link down", "unknown"],
)
def test_gpu_that_fell_off_the_bus_is_not_present(one_gpu, tmp_path, changes, present):
    with node(None, root=tmp_path) as bare:
        collector = bare.collector("pcie")
        collected(collector)
        one_gpu.write("0000:18:00.0", **changes)
        samples = collected(collector)

    width = changes["current_link_width"]
    assert present == samples["pcie_device_present", "0000:18:00.0"]
    assert (("pcie_link_width_lanes", "0000:18:00.0") in samples) == (width == "0")
    assert 16 == samples["pcie_link_width_lanes_max", "0000:18:00.0"]
    # What is above it, and what the kernel counted for it, stays.
    assert 1 == samples["pcie_device_present", "0000:17:00.0"]
    assert ("pcie_aer_errors_total", "0000:18:00.0", "fatal", "total") in samples


def test_function_that_was_unplugged_stays_visible_and_comes_back(one_gpu, tmp_path):
    files = one_gpu
    files.add(f"{SWITCH}/0000:17:01.0/0000:19:00.0", NIC)
    with node(None, root=tmp_path) as bare:
        collector = bare.collector("pcie")
        collected(collector)
        files.remove("0000:18:00.0")
        gone = collected(collector)
        files.add(f"{SWITCH}/0000:17:00.0/0000:18:00.0", GPU)
        back = collected(collector)

    gpu = ("0000:18:00.0",)
    assert 0 == gone["pcie_device_present", *gpu]
    assert 1 == gone["pcie_device_present", "0000:19:00.0"]
    assert ("pcie_device_info", *gpu, "gpu", "0000:17:00.0", "0x10de", "0x2330", "0") in gone
    assert ("pcie_link_width_lanes", *gpu) not in gone
    assert 1 == back["pcie_device_present", *gpu]
    assert 16 == back["pcie_link_width_lanes", *gpu]


def test_errors_that_rise_are_seen(one_gpu, tmp_path):
    key = ("pcie_aer_errors_total", "0000:18:00.0", "correctable", "BadTLP")
    with node(None, root=tmp_path) as bare:
        collector = bare.collector("pcie")
        before = collected(collector)[key]
        one_gpu.write("0000:18:00.0", aer_dev_correctable="RxErr 0\nBadTLP 7\nTOTAL_ERR_COR 7")

        assert (0, 7) == (before, collected(collector)[key])


def test_flood_of_types_and_functions_stays_bounded(files, tmp_path):
    types = "\n".join(f"Made{number} {number}" for number in range(10_000))
    for number in range(MAX_FUNCTIONS + 50):
        bus, device = divmod(number, 32)
        files.add(
            f"pci0000:00/0000:{bus:02x}:{device:02x}.0",
            NIC,
            aer_dev_correctable=f"RxErr 1\n{types}",
        )
    with node(None, root=tmp_path) as flooded:
        samples = flooded.collect("pcie")

    assert MAX_FUNCTIONS == len(only(samples, "pcie_device_info"))
    assert {"RxErr", "total"} == {key[2] for key in only(samples, "pcie_aer_errors_total")}


def test_node_without_gpu_and_nic_has_no_data():
    with case_node("cpu_only") as cpu_only, pytest.raises(NoData, match="bus/pci/devices"):
        cpu_only.collect("pcie")


def test_nearest_is_the_deepest_common_bridge(files):
    nic = files.add(f"{SWITCH}/0000:17:00.0/0000:18:00.0", NIC)
    same = [files.add(f"{SWITCH}/0000:17:0{n}.0/0000:2{n}:00.0", GPU) for n in (1, 2)]
    far = files.add("pci0000:15/0000:15:01.0/0000:30:00.0", GPU)
    functions = PciTree(Sysfs(files.root)).functions()
    gpus = [functions[bdf] for bdf in (far, *same)]

    assert ("switch", [functions[bdf] for bdf in same]) == nearest(functions[nic], gpus)
    assert ("switch", [functions[far]]) == nearest(functions[nic], gpus[:1])


def test_nearest_falls_back_to_host_bridge_and_numa_node(files):
    nic = files.add("pci0000:15/0000:15:01.0/0000:16:00.0", NIC)
    neighbour = files.add("pci0000:15/0000:15:02.0/0000:17:00.0", GPU)
    numa = files.add("pci0000:30/0000:30:01.0/0000:31:00.0", GPU)
    other = files.add("pci0000:80/0000:80:01.0/0000:81:00.0", GPU, numa_node="1")
    lone = files.add("pci0000:90/0000:90:01.0/0000:91:00.0", NIC, numa_node="-1")
    functions = PciTree(Sysfs(files.root)).functions()
    gpus = [functions[bdf] for bdf in (neighbour, numa, other)]

    assert ("host_bridge", [functions[neighbour]]) == nearest(functions[nic], gpus)
    assert ("numa", [functions[numa]]) == nearest(functions[nic], gpus[1:])
    assert (None, []) == nearest(functions[nic], gpus[2:])
    assert (None, []) == nearest(functions[lone], gpus)
    assert (None, []) == nearest(functions[nic], [])


def test_facts_are_read_again_only_when_the_addresses_change(one_gpu):
    tree = PciTree(Sysfs(one_gpu.root))
    first = tree.functions()
    one_gpu.write("0000:18:00.0", device="0xffff")

    assert tree.functions() is first
    one_gpu.add(f"{SWITCH}/0000:17:01.0/0000:19:00.0", NIC)
    assert "0xffff" == tree.functions()["0000:18:00.0"].device_id
    assert "nic" == tree.functions()["0000:19:00.0"].kind


def test_what_a_link_allows_is_read_once_a_minute_unless_its_function_is_gone(files, tmp_path):
    bdf = files.add("pci0000:17/0000:17:01.0/0000:18:00.0", GPU)
    with node(None, root=tmp_path) as host:
        collector = host.collector("pcie")

        def allowed():
            samples = collected(collector)
            host.clock.now += 10
            return samples.get(("pcie_link_width_lanes_max", bdf))

        first = allowed()
        files.write(bdf, max_link_width="8")
        later = [allowed() for _ in range(6)]
        files.write(bdf, current_link_width="63", max_link_width="255")
        gone = allowed()
        files.write(bdf, current_link_width="16", max_link_width="16")
        back = allowed()

    assert first == 16
    assert later == [16, 16, 16, 16, 16, 8]
    assert gone is None
    assert back == 16
