"""Python imports it first in every process of a run: puts a fault into one of the checks.

By its keyword arguments, which the checks have for this; INJECTED_FAULT names which.
"""

import functools
import os
import time

from peerwatch_checks import check as contract

FAULT = os.environ.get("INJECTED_FAULT", "")
# How many times as slow a slow part is.
TIMES = int(os.environ.get("INJECTED_TIMES", "2"))


def slow_copy(target, source):
    begun = time.perf_counter()
    target[:] = source
    # Copied once more it would take less: what was copied just now is in the caches. A slow check
    # goes on for seconds: others are left the processor.
    time.sleep((time.perf_counter() - begun) * (TIMES - 1))


def hanging_copy(_target, _source):
    time.sleep(600)


def slow_write(file, block):
    begun = time.perf_counter()
    file.write(block)
    os.fsync(file.fileno())
    time.sleep((time.perf_counter() - begun) * (TIMES - 1) + 0.001 * TIMES)


def devices():
    from peerwatch_checks.accelerators.devices import Device

    return [Device("cpu", f"gpu {index}", "GPU of a test") for index in range(4)]


def flipped_bit(device, product):
    import torch

    found = product.clone()
    if device.label == "gpu 2":
        found.view(torch.uint8).view(-1)[4711] ^= 8
    return found


ARGUMENTS = {
    "slow memory copy": ("memory_copy", lambda: {"copy": slow_copy}),
    "test that hangs": ("memory_copy", lambda: {"copy": hanging_copy}),
    "slow disk": ("disk_write_read", lambda: {"write": slow_write}),
    "flipped bit": ("matrix_product", lambda: {"devices": devices(), "result": flipped_bit}),
}


def registering(name, *given, **settings):
    if FAULT:
        # Loading torch alone takes a minute on a machine that does much else.
        settings["timeout_seconds"] = 250.0
    add = REGISTER(name, *given, **settings)
    checked, arguments = ARGUMENTS.get(FAULT, ("", dict))
    if name != checked:
        return add

    def wrapped(run):
        @functools.wraps(run)
        def faulty(context):
            return run(context, **arguments())

        return add(faulty)

    return wrapped


REGISTER = contract.register
# The machine of a test is busy: at the lowest priority a check would wait for minutes.
os.nice = lambda _more: 0
contract.register = registering
