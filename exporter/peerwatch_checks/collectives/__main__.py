"""One rank of a collective: ``python -m peerwatch_checks.collectives JSON``.

It prints one JSON object: the bandwidths in GB/s and whether the results were right.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta

from peerwatch_checks.accelerators.devices import CPU, Device
from peerwatch_checks.collectives.measuring import all_reduce_bandwidth, all_to_all_bandwidth


def main() -> int:
    """Join the group, measure, and leave."""
    told = json.loads(sys.argv[1])
    import torch  # noqa: PLC0415 - a mistake above is told without its seconds
    from torch import distributed  # noqa: PLC0415

    device = CPU
    if told["device"] != CPU.name:
        device = Device(told["device"], told["device"], "")
        torch.cuda.set_device(told["device"])
    else:
        # Ranks share the cores.
        torch.set_num_threads(1)
    distributed.init_process_group(
        told["backend"],
        init_method=told["init_method"],
        rank=told["rank"],
        world_size=told["ranks"],
        timeout=timedelta(seconds=told["seconds"]),
    )
    answer = {}
    for name, measure in (
        ("all_reduce", all_reduce_bandwidth),
        ("all_to_all", all_to_all_bandwidth),
    ):
        bandwidth, right = measure(device, size=told["size"], repeats=told["repeats"])
        answer[name] = {"bandwidth": bandwidth, "right": right}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
