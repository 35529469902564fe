"""One rank of a collective: ``python -m peerwatch_checks.collectives JSON``.

It prints one JSON object: by collective its bandwidth in GB/s and whether the result was right; or
the seconds of computing, of communicating, and of both at once; or those of steps of a model.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from peerwatch_checks.accelerators.devices import CPU, Device
from peerwatch_checks.collectives.measuring import all_reduce_bandwidth, all_to_all_bandwidth
from peerwatch_checks.collectives.overlap import overlap_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping


def main() -> int:
    """Join the group, measure, and leave."""
    task = json.loads(sys.argv[1])
    import torch  # noqa: PLC0415 - a mistake above is reported at once
    from torch import distributed  # noqa: PLC0415

    device = CPU
    if task["device"] != CPU.name:
        device = Device(task["device"], task["device"], "")
        torch.cuda.set_device(task["device"])
    else:
        # Ranks share the cores.
        torch.set_num_threads(1)
    distributed.init_process_group(
        task["backend"],
        init_method=task["init_method"],
        rank=task["rank"],
        world_size=task["ranks"],
        timeout=timedelta(seconds=task["seconds"]),
    )
    tasks = {"bandwidth": _bandwidth, "overlap": _overlap, "training": _training}
    answer = tasks[task["task"]](device, task)
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    distributed.destroy_process_group()
    return 0


def _bandwidth(device: Device, task: Mapping[str, Any]) -> dict[str, Any]:
    answer = {}
    for name, measure in (
        ("all_reduce", all_reduce_bandwidth),
        ("all_to_all", all_to_all_bandwidth),
    ):
        bandwidth, right = measure(
            device, size=task["size"], repeats=task["repeats"], least=task["least"]
        )
        answer[name] = {"bandwidth": bandwidth, "right": right}
    return answer


def _overlap(device: Device, task: Mapping[str, Any]) -> dict[str, Any]:
    return asdict(overlap_seconds(device, size=task["size"], repeats=task["repeats"]))


def _training(device: Device, task: Mapping[str, Any]) -> dict[str, Any]:
    from peerwatch_checks.collectives.reference_model import train  # noqa: PLC0415 - is torch's

    sizes = {name: task[name] for name in ("width", "layers", "batch", "sequence", "steps")}
    return asdict(train(device, **sizes))


if __name__ == "__main__":
    sys.exit(main())
