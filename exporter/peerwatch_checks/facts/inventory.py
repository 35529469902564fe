"""GPUs, NICs, processors, memory, disks, mounts and versions of a node, as short texts by key.

Only what is the same on every node of its kind is here: no serial numbers, names or addresses.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peerwatch_common.arm_cpus import arm_cpus

# Two nodes of a kind differ by what firmware and kernel keep for themselves. Chosen: no more than a
# small memory module of a server, so that a missing one shows.
_MEMORY_STEP = 1 << 34
# Chosen: disks of one size, but of several makers, differ by less.
_DISK_STEP = 10**10
# The kernel's unit in /sys/block/*/size, whatever the disk has.
_SECTOR = 512
# Not hardware: loop devices, memory as a disk, device mapper, software RAID.
_NO_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")
_SHARED = {
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "fuse.ceph", "cifs",
    "wekafs", "fuse.juicefs", "fuse.s3fs", "fuse.gcsfuse", "virtiofs", "9p", "daos", "pvfs2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the node's file systems are seen."""

    procfs: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    rootfs: Path = Path("/")


def inventory(roots: Roots, nvml: Callable[[], dict[str, str]] | None = None) -> dict[str, str]:
    """Return what a node has, by key, sorted; what cannot be read is not in it.

    Parameters
    ----------
    roots
        Where /proc, /sys and / are.
    nvml
        What the driver knows of GPUs; None: asked for by NVML.
    """
    found: dict[str, str] = {}
    for part in (_processors, _memory, _nics, _disks, _mounts, _system):
        found |= {key: value for key, value in part(roots) if value}
    found |= (nvml or gpu_facts)()
    return dict(sorted(found.items()))


def several(values: Iterable[str]) -> str:
    """Return values with how often each is there: ``8 x NVIDIA H100 80GB HBM3``."""
    counted = sorted(Counter(values).items())
    return ", ".join(f"{count} x {value}" for value, count in counted)


def gpu_facts() -> dict[str, str]:
    """Return what NVML says of all GPUs; without a driver there is none.

    A GPU that does not answer counts as ``unreadable``: it is here, and no other.
    """
    import pynvml  # noqa: PLC0415 - a list of checks needs no driver

    # Also a library that lacks a function is one of its errors, or one of the binding's own.
    try:
        pynvml.nvmlInit()
    except Exception:
        return {"gpu.count": "0"}
    try:
        count = int(pynvml.nvmlDeviceGetCount())
        facts: dict[str, list[str]] = {}
        for index in range(count):
            for key, value in _one_gpu(pynvml, index):
                facts.setdefault(key, []).append(value)
        found = {key: several(values) for key, values in facts.items()}
        found["gpu.count"] = str(count)
        found["gpu.driver"] = _said(lambda: pynvml.nvmlSystemGetDriverVersion())  # noqa: PLW0108 - it may be missing
        return {key: value for key, value in found.items() if value}
    except Exception:
        return {}
    finally:
        pynvml.nvmlShutdown()


def _one_gpu(pynvml: Any, index: int) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a module
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except Exception:
        yield "gpu.model", "unreadable"
        return
    yield "gpu.model", _said(lambda: pynvml.nvmlDeviceGetName(handle)) or "unreadable"
    yield "gpu.vbios", _said(lambda: pynvml.nvmlDeviceGetVbiosVersion(handle)) or "unknown"
    memory = _said(lambda: f"{pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30:.0f} GiB")
    yield "gpu.memory", memory or "unknown"
    links = 0
    for link in range(getattr(pynvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            links += int(pynvml.nvmlDeviceGetNvLinkState(handle, link)) == 1
        except Exception:
            break
    yield "gpu.nvlinks", str(links)
    width = _said(lambda: str(pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)))
    generation = _said(lambda: str(pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)))
    yield "gpu.pcie", f"gen {generation or '?'} x{width or '?'}"


def _said(ask: Callable[[], object]) -> str:
    try:
        value = ask()
    except Exception:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _processors(roots: Roots) -> Iterator[tuple[str, str]]:
    text = _text(roots.procfs / "cpuinfo")
    models = [_value(line) for line in text.splitlines() if line.startswith("model name")]
    count = sum(line.startswith("processor") for line in text.splitlines())
    yield "cpu.count", str(count or "")
    yield "cpu.model", ", ".join(sorted(set(models)) or arm_cpus(text))
    nodes = list((roots.sysfs / "devices" / "system" / "node").glob("node[0-9]*"))
    yield "cpu.numa_nodes", str(len(nodes) or "")


def _memory(roots: Roots) -> Iterator[tuple[str, str]]:
    for line in _text(roots.procfs / "meminfo").splitlines():
        name, _, rest = line.partition(":")
        number = rest.strip().partition(" ")[0]
        if name == "MemTotal" and number.isdigit():
            steps = round(int(number) * 1024 / _MEMORY_STEP)
            yield "memory.total", f"{max(steps, 1) * (_MEMORY_STEP >> 30)} GiB"


def _nics(roots: Roots) -> Iterator[tuple[str, str]]:
    rates, firmware = [], []
    for device in sorted((roots.sysfs / "class" / "infiniband").glob("*")):
        firmware.append(_text(device / "fw_ver"))
        for port in sorted((device / "ports").glob("*")):
            state = _text(port / "state").partition(":")[2].strip().lower() or "unknown"
            layer = _text(port / "link_layer")
            rates.append(f"{layer} {_text(port / 'rate').partition(' (')[0]} {state}".strip())
    yield "rdma.ports", several(rates)
    yield "rdma.firmware", several(filter(None, firmware))
    yield "net.interfaces", several(_interfaces(roots.sysfs))


def _interfaces(sysfs: Path) -> Iterator[str]:
    """Yield the rates of physical network interfaces in Mb/s, and whether they are up."""
    for interface in sorted((sysfs / "class" / "net").glob("*")):
        # Bridges, bonds and containers' ends have no device of their own.
        if (interface / "device").exists():
            speed = _text(interface / "speed")
            rate = f"{speed} Mb/s" if speed.isdigit() else "no rate"
            yield f"{rate} {_text(interface / 'operstate') or 'unknown'}"


def _disks(roots: Roots) -> Iterator[tuple[str, str]]:
    sizes = []
    for device in sorted((roots.sysfs / "block").glob("*")):
        sectors = _text(device / "size")
        if not device.name.startswith(_NO_DISKS) and sectors.isdigit() and int(sectors):
            steps = round(int(sectors) * _SECTOR / _DISK_STEP)
            kind = "nvme" if device.name.startswith("nvme") else "disk"
            sizes.append(f"{kind} {max(steps, 1) * 10} GB")
    yield "disk.sizes", several(sizes)


def _mounts(roots: Roots) -> Iterator[tuple[str, str]]:
    shared = []
    for line in _text(roots.procfs / "self" / "mounts").splitlines():
        fields = line.split(" ")
        if len(fields) > 3 and fields[2] in _SHARED:
            mode = "ro" if "ro" in fields[3].split(",") else "rw"
            shared.append(f"{fields[2]} {fields[1]} {mode}")
    yield "mount.shared", ", ".join(sorted(set(shared)))


def _system(roots: Roots) -> Iterator[tuple[str, str]]:
    yield "system.kernel", _text(roots.procfs / "sys" / "kernel" / "osrelease")
    for line in _text(roots.rootfs / "etc" / "os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            yield "system.distribution", line.partition("=")[2].strip().strip('"')
    yield "system.nvidia_module", _text(roots.sysfs / "module" / "nvidia" / "version")
    yield "system.page_bytes", str(os.sysconf("SC_PAGE_SIZE"))


def _value(line: str) -> str:
    return " ".join(line.partition(":")[2].split())


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
