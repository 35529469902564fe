"""NCCL's RAS service: the conversation of its protocol, then whatever the test wants."""

from __future__ import annotations

import contextlib
import json
import socket
import threading


class FakeRas:
    """Listens on a port of this machine.

    Parameters
    ----------
    body
        What ``VERBOSE STATUS`` is answered with, to its end: bytes, a document, or a function that
        gets the connection.
    speaks_json
        Whether it knows the JSON format.
    greeting
        What it answers the client's first line with.
    """

    def __init__(self, body, *, speaks_json=True, greeting=b"SERVER PROTOCOL 2\n"):
        self.body = body
        self._speaks_json = speaks_json
        self._greeting = greeting
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        # Alone, closing leaves it to listen until the next connection.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection):
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
            for line in lines:
                command = line.strip().decode()
                if command.startswith("CLIENT PROTOCOL"):
                    connection.sendall(self._greeting)
                elif command.startswith("TIMEOUT"):
                    connection.sendall(b"OK\n")
                elif command == "SET FORMAT json":
                    known = self._speaks_json
                    connection.sendall(b"OK\n" if known else b"ERROR: Unknown command\n")
                elif command == "VERBOSE STATUS":
                    self._answer(connection)
                    return

    def _answer(self, connection):
        if callable(self.body):
            self.body(connection)
            return
        is_bytes = isinstance(self.body, bytes)
        connection.sendall(self.body if is_bytes else json.dumps(self.body, indent=1).encode())


def ras_rank(rank, pid, *, host="127.0.0.1", **counts):
    """Return a rank of a communicator; ``counts`` are by NCCL's names."""
    kinds = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
    return {
        "rank": rank,
        "host": host,
        "pid": pid,
        "cuda_dev": rank % 8,
        "nvml_dev": rank % 8,
        "status": {"init_state": 0, "async_error": 0, "finalize_called": False},
        "collective_counts": {kind: counts.get(kind, 0) for kind in kinds},
    }


def communicator(ranks, *, missing=(), name="0x7f8c496ae9f661", size=None):
    """Return a communicator of the JSON format."""
    return {
        "hash": name,
        "secondary_hash": f"{name}:0x1",
        "size": size or len(ranks) + len(missing),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": list(ranks),
        "missing_ranks": list(missing),
    }


def status(*communicators):
    """Return a whole document."""
    return {
        "nccl_version": "2.30.7",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-01-01 00:00:00",
        "communicators_count": len(communicators),
        "communicators": list(communicators),
        "ras": {"collection_time_sec": 0.01, "timeouts_count": 0},
    }
