"""A worker server on a unix socket that answers whatever the test wants, and ring entries."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time


class FakeServer:
    """Answers each request with what ``answers[target]`` holds: bytes sent as they are.

    Parameters
    ----------
    path
        The socket.
    answers
        By target, such as ``/handler/``: a JSON document, or bytes for the whole answer, or a
        function that gets the connection.
    """

    def __init__(self, path, answers):
        self.answers = answers
        self.requests = []
        self._ended = False
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._ended = True
        self._socket.close()

    def _serve(self):
        while not self._ended:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection, contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            target = request.split(b" ", 2)[1].decode()
            self.requests.append(target)
            answer = self.answers.get(target, b"HTTP/1.1 404 Not Found\r\n\r\n")
            if callable(answer):
                answer(connection)
            else:
                connection.sendall(answer if isinstance(answer, bytes) else http(answer))


def http(document):
    """Return a whole answer with a JSON document as its body."""
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def drip(connection):
    """Send a byte now and then, for ever."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


def flood(connection):
    """Send without an end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def entry(record, sequence, *, group="0", group_id=0, name="gloo:all_reduce", **more):
    """Return an entry of the ring as torch writes it over gloo; launched at ``record`` seconds."""
    return {
        "record_id": record,
        "pg_id": group_id,
        "process_group": [group, "undefined"],
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "profiling_name": name,
        "input_sizes": [[1000]],
        "output_sizes": [[1000]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "time_created_ns": int((record + 1) * 1e9),
        "time_discovered_started_ns": 0,
        "time_discovered_completed_ns": 0,
        **more,
    }


def dump(entries, **progress):
    """Return a document of the recorder; ``progress`` is by group number: ``g0=(3, -1, 2)``."""
    keys = ("enqueued", "started", "completed")
    return {
        "version": "2.10",
        "entries": entries,
        "pg_config": {"": {"desc": "", "name": "", "ranks": "[]"}},
        "pg_status": {
            number.removeprefix("g"): {
                f"last_{key}_collective": str(value)
                for key, value in zip(keys, values, strict=True)
            }
            for number, values in progress.items()
        },
    }
