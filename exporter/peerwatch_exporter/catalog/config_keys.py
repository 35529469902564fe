"""What of a node's configuration is published: one entry for each key.

To add a key that stands in a file, a sysctl, a kernel module or a variable of the ranks, add its
entry here. What has another value on every node by design (serial numbers, addresses, host names)
is not in these tables, and never published: nodes are compared by them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_common.arm_cpus import arm_cpus
from peerwatch_common.metrics.spec import MetricSpec

if TYPE_CHECKING:
    from collections.abc import Callable

NODE_CONFIG = MetricSpec(
    "node_config_info",
    "gauge",
    "1",
    ("key", "value"),
    "How the node is set up, one row for each key (docs/config-check.md lists them). Of GPUs and "
    "NICs that agree a key names the aspect, such as gpu.vbios; of those that do not it also names "
    "the device, as in gpu.3.vbios. Value is always 1.",
    "files of /proc and /sys, PCI configuration space, netlink (dcbnl), NVML",
)
RANK_CONFIG = MetricSpec(
    "rank_config_info",
    "gauge",
    "1",
    ("job_id", "key", "value"),
    "With which variables and limits the ranks of a job on this node run, one row for each: "
    "rank.NCCL_IB_HCA where all ranks agree, rank.3.NCCL_IB_HCA with the local rank where they do "
    "not. rank.environment is there where the variables could be read. Value is always 1.",
    "/proc/<pid>/environ, /proc/<pid>/limits",
    "training job",
)

# A ``cpuinfo`` says the same of every CPU; boot parameters (2,048 bytes on x86) and mounts are
# shorter.
MOST_BYTES = 4096
_SELECTED = re.compile(r"\[([^\]]+)\]")


@dataclass(frozen=True, slots=True)
class FileKey:
    """A key whose value stands in one file.

    Parameters
    ----------
    key
        What it is called.
    path
        Below the roots ``proc`` and ``sys``.
    why
        What a different value does to a training job.
    parse
        Makes the value of the file's text; None or empty: there is none.
    """

    key: str
    path: str
    why: str
    parse: Callable[[str], str | None] = str.strip


def selected(text: str) -> str | None:
    """Return the choice in brackets, as in ``always [madvise] never``."""
    found = _SELECTED.search(text)
    return found[1] if found else text


def gibibytes(text: str) -> str | None:
    """Return about how much memory there is, in GiB and steps of some per cent.

    What firmware and kernel keep for themselves differs by some MiB; a module that is missing is a
    sixteenth or more.
    """
    found = re.search(r"^MemTotal:\s+(\d{1,15}) kB", text, re.MULTILINE)
    if found is None:
        return None
    size = int(found[1]) / 2**20
    step = 2 ** max(0, int(size).bit_length() - 6)
    return f"{round(size / step) * step}"


def field(name: str) -> Callable[[str], str | None]:
    """Return what reads the first line of a file that begins with a name and a colon."""
    pattern = re.compile(rf"^{re.escape(name)}\s*:\s*(.+)$", re.MULTILINE)

    def parse(text: str) -> str | None:
        found = pattern.search(text)
        return found[1] if found else None

    return parse


def cpu_model(text: str) -> str | None:
    """Return the model of the CPUs, by its name or by the numbers of an Arm design."""
    return field("model name")(text) or " + ".join(arm_cpus(text)) or None


# Parameters of the kernel's command line that change how fast memory, interrupts and PCIe are; the
# others name disks and consoles, and differ by design.
_PARAMETERS = re.compile(
    r"(?:(?:intel_|amd_)?iommu(?:\.\w+)?|pci|pcie_aspm|mitigations|isolcpus|nohz_full|rcu_nocbs"
    r"|(?:default_)?hugepagesz?|transparent_hugepage|numa_balancing|processor\.max_cstate"
    r"|intel_idle\.max_cstate|idle|cpufreq\.default_governor|intel_pstate|amd_pstate|nosmt"
    r"|tsc|clocksource|cgroup_enable|systemd\.unified_cgroup_hierarchy)(?:=\S*)?"
)


def parameters(text: str) -> str:
    """Return the boot parameters that matter, in order; ``none`` if there is none."""
    return " ".join(sorted(set(filter(_PARAMETERS.fullmatch, text.split())))) or "none"


FILE_KEYS: tuple[FileKey, ...] = (
    FileKey("kernel.release", "proc/sys/kernel/osrelease", "another kernel, other drivers"),
    FileKey("kernel.build", "proc/sys/kernel/version", "the same release, built otherwise"),
    FileKey(
        "kernel.parameters",
        "proc/cmdline",
        "IOMMU, idle states, isolated CPUs, huge pages: those that matter, in order",
        parameters,
    ),
    FileKey("machine.model", "sys/class/dmi/id/product_name", "another generation of machine"),
    FileKey("machine.bios", "sys/class/dmi/id/bios_version", "other defaults of PCIe and power"),
    FileKey("machine.board", "sys/class/dmi/id/board_name", "another wiring of PCIe"),
    FileKey("cpu.model", "proc/cpuinfo", "another clock and cache", cpu_model),
    FileKey("cpu.microcode", "proc/cpuinfo", "other mitigations", field("microcode")),
    FileKey("cpu.online", "sys/devices/system/cpu/online", "CPUs that are switched off"),
    FileKey("cpu.isolated", "sys/devices/system/cpu/isolated", "CPUs that ranks cannot use"),
    FileKey("cpu.smt", "sys/devices/system/cpu/smt/control", "half the speed of a busy core"),
    FileKey(
        "cpu.frequency_driver",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_driver",
        "who sets the clock",
    ),
    FileKey("cpu.boost", "sys/devices/system/cpu/cpufreq/boost", "clocks above the base"),
    FileKey("cpu.no_turbo", "sys/devices/system/cpu/intel_pstate/no_turbo", "the same on Intel"),
    FileKey(
        "cpu.idle_driver",
        "sys/devices/system/cpu/cpuidle/current_driver",
        "how long a CPU takes to wake",
    ),
    FileKey("numa.nodes", "sys/devices/system/node/online", "how the BIOS splits memory"),
    FileKey("memory.gibibytes", "proc/meminfo", "a memory module that is missing", gibibytes),
    FileKey(
        "memory.transparent_hugepages",
        "sys/kernel/mm/transparent_hugepage/enabled",
        "faults and pauses of the host's memory",
        selected,
    ),
    FileKey(
        "memory.transparent_hugepages_defrag",
        "sys/kernel/mm/transparent_hugepage/defrag",
        "pauses in which memory is compacted",
        selected,
    ),
    FileKey(
        "memory.hugepages_2mib",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "memory that is taken from the page cache",
    ),
    FileKey(
        "memory.hugepages_1gib",
        "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
        "memory that is taken from the page cache",
    ),
    FileKey(
        "time.clocksource",
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
        "hpet instead of tsc makes every reading of the time a slow one",
    ),
    FileKey(
        "driver.nvidia_kind",
        "proc/driver/nvidia/version",
        "open or proprietary kernel module",
        lambda text: "open" if "Open Kernel Module" in text else "proprietary",
    ),
    FileKey(
        "driver.nvidia_registry",
        "proc/driver/nvidia/params",
        "options that the driver was loaded with",
        field("RegistryDwords"),
    ),
)


@dataclass(frozen=True, slots=True)
class Sysctl:
    """A setting below ``/proc/sys``, its dots for slashes, and what it does to a job."""

    name: str
    why: str


SYSCTLS: tuple[Sysctl, ...] = (
    Sysctl("kernel.numa_balancing", "page faults that move memory under a running rank"),
    Sysctl("kernel.pid_max", "how many threads a node can have"),
    Sysctl("kernel.nmi_watchdog", "an interrupt and a counter of each CPU"),
    Sysctl("kernel.hung_task_timeout_secs", "when the kernel reports a task that hangs"),
    Sysctl("kernel.yama.ptrace_scope", "whether a rank that hangs can be examined"),
    Sysctl("kernel.perf_event_paranoid", "whether it can be profiled"),
    Sysctl("kernel.shmmax", "the largest shared memory segment"),
    Sysctl("kernel.shmall", "all shared memory together"),
    Sysctl("vm.max_map_count", "how many mappings a rank can have"),
    Sysctl("vm.overcommit_memory", "whether a fork of a large rank is refused"),
    Sysctl("vm.swappiness", "whether memory of ranks goes to disk"),
    Sysctl("vm.zone_reclaim_mode", "pauses in which a NUMA node frees its own memory"),
    Sysctl("fs.nr_open", "the highest limit of open files"),
    Sysctl("net.core.rmem_max", "receive buffers of sockets"),
    Sysctl("net.core.wmem_max", "send buffers of sockets"),
    Sysctl("net.core.netdev_max_backlog", "packets that wait for a CPU before they are dropped"),
    Sysctl("net.core.somaxconn", "connections that wait for a rendezvous of many ranks"),
    Sysctl("net.core.default_qdisc", "in which order packets leave"),
    Sysctl("net.ipv4.tcp_rmem", "how far TCP's receive window grows"),
    Sysctl("net.ipv4.tcp_wmem", "how far TCP's send buffer grows"),
    Sysctl("net.ipv4.tcp_congestion_control", "how TCP shares a link"),
    Sysctl("net.ipv4.tcp_mtu_probing", "whether TCP survives a smaller MTU on the way"),
    Sysctl("net.ipv4.tcp_ecn", "whether TCP obeys congestion marks"),
    Sysctl("net.ipv4.tcp_keepalive_time", "when a dead connection is noticed"),
    Sysctl("net.ipv4.ip_local_port_range", "how many connections a node can open"),
    Sysctl("net.ipv4.conf.all.rp_filter", "drops packets of nodes with several NICs in a subnet"),
    Sysctl("net.ipv4.conf.all.arp_ignore", "which NIC answers for an address"),
    Sysctl("net.ipv4.conf.all.arp_announce", "which address a NIC asks with"),
    Sysctl("net.ipv4.neigh.default.gc_thresh3", "neighbours a node can know in a large subnet"),
)


@dataclass(frozen=True, slots=True)
class Module:
    """A kernel module whose version is published; if it is not loaded, only where ``beside`` is."""

    name: str
    why: str
    beside: str = ""


MODULES: tuple[Module, ...] = (
    Module("nvidia", "the GPU driver"),
    Module("nvidia_peermem", "whether NICs reach GPU memory without the CPU", "nvidia"),
    Module("gdrdrv", "copies of small messages from GPU memory", "nvidia"),
    Module("mlx5_core", "the NIC's driver, of the kernel or of OFED"),
    Module("ib_core", "the RDMA stack, of the kernel or of OFED"),
    Module("bnxt_re", "Broadcom's RDMA driver"),
    Module("irdma", "Intel's RDMA driver"),
    Module("efa", "Amazon's RDMA driver"),
    Module("lustre", "the client of the parallel file system"),
)

# Daemons that keep the clock right, by the names that the kernel shows (15 characters at most).
TIME_SERVICES = ("chronyd", "ntpd", "systemd-timesyn", "ptp4l", "phc2sys")

# Variables of ranks: by how they begin, and by name.
VARIABLE_PREFIXES = (
    "CUDA_",
    "FI_",
    "GLOO_",
    "KMP_",
    "MKL_",
    "NCCL_",
    "NVSHMEM_",
    "OMP_",
    "PYTORCH_",
    "TORCH_NCCL_",
    "UCX_",
)
VARIABLE_NAMES = frozenset(
    {
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LOCAL_WORLD_SIZE",
        "MALLOC_ARENA_MAX",
        "NVIDIA_TF32_OVERRIDE",
        "PYTHONPATH",
        "TORCH_CPP_LOG_LEVEL",
        "TORCH_DISTRIBUTED_DEBUG",
        "WORLD_SIZE",
    }
)
# Lists of directories name users and projects: a digest is enough to see that they differ.
HASHED_VARIABLES = frozenset({"LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"})
# Addresses, and files that each rank or node has for itself.
UNLIKE_VARIABLES = frozenset(
    {
        "CUDA_MPS_LOG_DIRECTORY",
        "CUDA_MPS_PIPE_DIRECTORY",
        "NCCL_COMM_ID",
        "NCCL_DEBUG_FILE",
        "NCCL_GRAPH_DUMP_FILE",
        "NCCL_HOSTID",
        "NCCL_INSPECTOR_DUMP_DIR",
        "NCCL_RAS_ADDR",
        "NCCL_TOPO_DUMP_FILE",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
    }
)

# Limits of ranks: our name, and how the line of ``/proc/<pid>/limits`` begins.
LIMITS: tuple[tuple[str, str], ...] = (
    ("limit_memlock", "Max locked memory"),
    ("limit_nofile", "Max open files"),
    ("limit_stack", "Max stack size"),
    ("limit_nproc", "Max processes"),
    ("limit_core", "Max core file size"),
)
