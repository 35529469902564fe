"""A driver process on a fake library that hangs, crashes or prints nonsense as a file tells it.

Beside the keys of ``FakeNvml``, the scenario file may have: ``no_library``; ``init_delay``
(seconds); for a GPU ``crash``: ``exit``, ``signal``, ``stop``, ``garbage``, ``half`` or ``huge``;
``reloaded`` (a return code for every call); ``xids``: codes to report, a GPU index each. Every GPU
that is touched is written to ``<scenario>.touched``, with the process id.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from peerwatch_demo.simulated_node.nvml_library import FakeNvml, put_in_place
from peerwatch_demo.simulated_node.nvml_registry import ReturnCode
from peerwatch_exporter.driver.serve import options_of, serve
from peerwatch_exporter.driver.wire import pack


class FaultyNvml(FakeNvml):
    """Misbehaves as its scenario file says when it is called."""

    channel = -1

    def follow(self):
        super().follow()
        time.sleep(self.scenario.get("init_delay", 0) if not self.initialised else 0)
        if self.initialised and self.scenario.get("reloaded"):
            raise ReturnCode(self.scenario["reloaded"])
        for index, code in self.scenario.pop("xids", ()):
            self.raise_xid(index, code)

    def gpu(self, index, function):
        with Path(f"{self._path}.touched").open("a") as touched:
            touched.write(f"{os.getpid()} {index}\n")
        self.misbehave(self.board(index).get("crash"))
        return super().gpu(index, function)

    def misbehave(self, how):
        if how == "exit":
            os._exit(3)
        elif how == "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "garbage":
            os.write(self.channel, b"nvidia-modprobe: something went wrong\n" * 10)
            time.sleep(3600)
        elif how == "half":
            os.write(self.channel, pack(("facts", ([], {}, [], [])))[:-3])
            os._exit(0)
        elif how == "huge":
            os.write(self.channel, b"PWd1" + b"\xff" * 8)
            time.sleep(3600)
        elif how == "shape":
            os.write(self.channel, pack(("answer", "gpu", 1)))
            time.sleep(3600)


def main():
    options = options_of(sys.argv[2:])
    fake = FaultyNvml.from_file(Path(sys.argv[1]))
    fake.channel = int(options["channel"])
    put_in_place(None if fake.scenario.get("no_library") else fake)
    return serve(options)


if __name__ == "__main__":
    sys.exit(main())
