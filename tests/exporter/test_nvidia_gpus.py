"""The number of NVIDIA GPUs on the PCIe bus that are meant for the host's own driver."""

from __future__ import annotations

import pytest

from pci_tree import GPU, NIC, NVSWITCH, PciFiles
from peerwatch_exporter.sources.host.nvidia_gpus import NvidiaGpusOnPci
from peerwatch_exporter.sources.host.sysfs import Sysfs

SCREEN = {**GPU, "class": "0x030000"}
AMD = {**GPU, "vendor": "0x1002"}


def bind(files, bdf, driver):
    link = files.root / "bus/pci/devices" / bdf / "driver"
    link.unlink(missing_ok=True)
    if driver is not None:
        link.symlink_to(f"../../../bus/pci/drivers/{driver}")


@pytest.mark.parametrize(
    ("facts", "driver", "counted"),
    [
        (GPU, None, 1),
        (GPU, "nvidia", 1),
        (GPU, "nouveau", 1),
        (GPU, "vfio-pci", 0),
        (GPU, "pci-stub", 0),
        (SCREEN, None, 1),
        (SCREEN, "nvidia", 1),
        (SCREEN, "nouveau", 0),
        (AMD, None, 0),
        (NIC, None, 0),
        (NVSWITCH, "nvidia-nvswitch", 0),
    ],
)
def test_which_functions_count(tmp_path, facts, driver, counted):
    files = PciFiles(tmp_path)
    bind(files, files.add("pci0000:10/0000:11:00.0", facts), driver)

    assert counted == NvidiaGpusOnPci(Sysfs(tmp_path)).count()


def test_gpu_that_leaves_the_bus_counts_on(tmp_path):
    files = PciFiles(tmp_path)
    gone = files.add("pci0000:10/0000:11:00.0", GPU)
    files.add("pci0000:10/0000:12:00.0", GPU)
    gpus = NvidiaGpusOnPci(Sysfs(tmp_path))
    assert 2 == gpus.count()
    files.remove(gone)

    assert 2 == gpus.count()


def test_gpu_that_is_handed_to_a_virtual_machine_later_no_longer_counts(tmp_path):
    files = PciFiles(tmp_path)
    bdf = files.add("pci0000:10/0000:11:00.0", GPU)
    gpus = NvidiaGpusOnPci(Sysfs(tmp_path))
    assert 1 == gpus.count()
    bind(files, bdf, "vfio-pci")

    assert 0 == gpus.count()


def test_node_without_sysfs_has_none(tmp_path):
    assert 0 == NvidiaGpusOnPci(Sysfs(tmp_path / "nowhere")).count()
