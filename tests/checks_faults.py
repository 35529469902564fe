"""Faults put into a node, and whether ``peerwatch-check``, run whole, names them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checks_program import Program
from peerwatch_common.check_results.record import Record, parse_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INJECTED = Path(__file__).parent / "checks" / "injected"
# With it checks keep their priority: at the lowest one they wait for minutes on a busy machine.
UNHURRIED = os.pathsep.join([str(INJECTED), *sys.path])
_FULL = 'mount -t tmpfs -o size=4m none "$0" && head -c 4100000 /dev/zero > "$0/old" && exec "$@"'
GPUS = 8


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and what must be said of it.

    Parameters
    ----------
    name
        What it is called.
    check
        What is run.
    device, status, says
        A record that names it has these, ``says`` within its message.
    """

    name: str
    check: str
    device: str
    status: str
    says: str

    def is_named(self, records: Sequence[Record]) -> bool:
        """Return whether one of the records names it."""
        return any(
            (each.check, each.device, each.status) == (self.check, self.device, self.status)
            and self.says in each.message
            for each in records
        )


FAULTS = (
    Fault("slow memory copy", "memory_copy", "", "fail", "the median of 8 peers"),
    Fault("flipped bit", "matrix_product", "gpu 2 bfloat16", "fail", "other bits"),
    Fault("lower link rate", "link_rates", "mlx5_3 port 1", "fail", "its rate is 200 Gb/s"),
    Fault("lossy link", "link_errors", "mlx5_2 port 1", "fail", "port_rcv_errors"),
    Fault("missing GPU", "inventory", "gpu.count", "fail", "gpu.count is 7, expected is 8."),
    Fault("wrong driver version", "inventory", "gpu.driver", "fail", "is 535.1, expected is 550."),
    Fault("full disk", "disk_write_read", "/", "fail", "No space left on device"),
    Fault("nearly full disk", "filesystem_space", "/", "fail", "of the space of / is in use"),
    Fault("slow disk", "disk_write_read", "work write", "fail", "the median of 8 peers"),
    Fault("busy GPU", "memory_copy", "", "skipped", "GPU 1 is in use by process 4711."),
    Fault("test that hangs", "memory_copy", "", "error", "It did not end within"),
)


def put(path: Path, text: str) -> None:
    """Write a file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class FaultyNode:
    """A node into which faults are put.

    Parameters
    ----------
    folder
        Where its files are.
    peers
        Records of a healthy run of this machine, of which eight peers are made.
    times
        How many times as slow slow parts are.
    checks
        Settings of checks.
    """

    def __init__(
        self,
        folder: Path,
        peers: Sequence[Record] = (),
        *,
        times: int = 2,
        checks: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self._folder, self._times = folder, times
        self._checks = {"matrix_product": {"size": 128, "repeats": 2}, **(checks or {})}
        self._peers = folder / "peers.jsonl"
        nodes = [replace(each, node=f"peer{i}") for each in peers for i in range(8)]
        put(self._peers, "".join(f"{each.to_json()}\n" for each in nodes))

    def run(self, fault: Fault) -> tuple[int, list[Record]]:
        """Return exit status and records of the fault's check on the node that has it."""
        folder = self._folder / fault.name.replace(" ", "-")
        folder.mkdir()
        program = Program(folder)
        program.settings["checks"] = dict(self._checks)
        environment = {"INJECTED_FAULT": fault.name, "INJECTED_TIMES": str(self._times)}
        arguments = [fault.check, "--peers", str(self._peers)]
        prepare = getattr(self, "_" + fault.name.replace(" ", "_").lower(), None)
        with contextlib.ExitStack() as stack:
            before: list[str] = []
            if prepare is not None:
                before = prepare(program, environment, arguments, stack) or []
            return self._result(program, before, arguments, environment)

    def _result(
        self,
        program: Program,
        before: list[str],
        arguments: list[str],
        environment: dict[str, str],
    ) -> tuple[int, list[Record]]:
        environment = {**environment, "PYTHONPATH": UNHURRIED}
        process = program.start(*arguments, "--json", before=before, **environment)
        out, err = process.communicate(timeout=600)
        if process.returncode not in {0, 1, 2, 3}:
            raise RuntimeError(f"peerwatch-check ended with {process.returncode}: {err[-500:]}")
        return process.returncode, [parse_record(line) for line in out.splitlines()]

    def _flipped_bit(self, program: Program, *_: object) -> None:
        put(program.folder / "proc/driver/nvidia/gpus/0000:17:00.0/information", "Model: test\n")
        program.settings["paths"]["procfs"] = str(program.folder / "proc")

    def _links(self, program: Program) -> Path:
        """Make a tree like /sys with four ports."""
        sysfs = program.folder / "sys"
        for index in range(4):
            port = sysfs / f"class/infiniband/mlx5_{index}/ports/1"
            put(port / "state", "4: ACTIVE\n")
            put(port / "rate", "400 Gb/sec (4X NDR)\n")
            put(port / "counters/port_rcv_errors", "0\n")
        program.settings["paths"]["sysfs"] = str(sysfs)
        return sysfs / "class/infiniband"

    def _lower_link_rate(self, program: Program, *_: object) -> None:
        put(self._links(program) / "mlx5_3/ports/1/rate", "200 Gb/sec (4X HDR)\n")

    def _lossy_link(
        self,
        program: Program,
        _environment: object,
        _arguments: object,
        stack: contextlib.ExitStack,
    ) -> None:
        counter = self._links(program) / "mlx5_2/ports/1/counters/port_rcv_errors"
        stack.enter_context(_growing(counter))

    def _expecting(self, program: Program, environment: dict[str, str]) -> None:
        """Expect what a node with all its GPUs has."""
        kind = program.folder / "kind.yaml"
        gpus = {"gpu.count": str(GPUS), "gpu.driver": "550.54.15"}
        put(kind, "".join(f"{key}: '{value}'\n" for key, value in gpus.items()))
        program.settings["checks"]["inventory"] = {"expectation": str(kind)}
        environment["INJECTED_GPUS"] = str(GPUS)

    def _missing_gpu(self, program: Program, environment: dict[str, str], *_: object) -> None:
        self._expecting(program, environment)
        environment["INJECTED_GPUS"] = str(GPUS - 1)

    def _wrong_driver_version(
        self, program: Program, environment: dict[str, str], *_: object
    ) -> None:
        self._expecting(program, environment)
        environment["INJECTED_DRIVER"] = "535.1"

    def _full_disk(self, program: Program, *_: object) -> list[str]:
        full = program.folder / "full"
        full.mkdir()
        program.settings["paths"]["rootfs"] = str(full)
        for check in ("disk_write_read", "filesystem_space"):
            program.settings["checks"][check] = {"paths": ["/"]}
        # In a mount namespace of its own: it is gone with the program.
        return [*UNSHARE, "sh", "-c", _FULL, str(full)]

    _nearly_full_disk = _full_disk

    def _busy_gpu(self, _program: Program, environment: dict[str, str], *_: object) -> None:
        environment["INJECTED_GPUS"] = str(GPUS)

    def _test_that_hangs(
        self, _program: Program, _environment: object, arguments: list[str], _stack: object
    ) -> None:
        arguments += ["--timeout", "3"]


UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")


def can_mount() -> bool:
    """Return whether this machine lets a process mount in namespaces of its own."""
    if shutil.which("unshare") is None:
        return False
    command = [*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def _growing(counter: Path) -> Iterator[None]:
    """Count errors, some thousand per second."""
    stop = threading.Event()

    def count() -> None:
        total = 0
        while not stop.wait(0.02):
            total += 100
            # Whole or not at all: who reads it between must not find it empty.
            new = counter.with_name(".new")
            new.write_text(f"{total}\n")
            new.replace(counter)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
