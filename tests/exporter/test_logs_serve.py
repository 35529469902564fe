"""The process that reads logs takes what it is told, however it arrives."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict

from log_cases import rank_target
from peerwatch_exporter.sources.logs.agreed import MARK_BYTES, LogSettings
from peerwatch_exporter.sources.logs.found import MarkedGuard
from peerwatch_exporter.sources.logs.serve import LogServer
from peerwatch_exporter.sources.logs.targets import Targets


def test_targets_that_come_with_the_settings_are_known(tmp_path):
    settings = LogSettings(
        procfs=str(tmp_path),
        kmsg=None,
        processes=False,
        pods_directory=None,
        paths=[f"{tmp_path}/rank-{{rank}}.log"],
        signatures=[],
        first_error=False,
        tail_bytes=65536,
        max_bytes_per_second=65536,
        max_files=10,
        started=0.0,
    )
    targets = Targets((rank_target(3, local_rank=1),))
    messages = (
        {"settings": asdict(settings), "positions": []},
        {"targets": targets.to_data(), "hung": []},
    )
    (tmp_path / "rank-3.log").write_bytes(b"")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in messages))
        server = LogServer(theirs, MarkedGuard(memoryview(bytearray(MARK_BYTES))))
        server.step()
        report = json.loads(ours.recv(65536))

    server._follower.close()

    assert server._ranks.has("job", 3)
    assert {"path": 1} == report["files"]
