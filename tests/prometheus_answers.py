"""A server that answers queries as a test wants it."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class Answering(Protocol):
    """What is asked.

    Parameters
    ----------
    status
        Of each answer.
    authorization
        That of the last request is put here.
    ended
        Set when the test is over: the answer ``slow`` waits for it.
    """

    status: int
    authorization: str
    ended: threading.Event

    def answer(self, query: str) -> bytes:
        """Return the body of the answer."""


@contextmanager
def serving(fake: Answering) -> Iterator[str]:
    """Serve on a port of this machine; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            fake.authorization = self.headers.get("Authorization", "")
            body = fake.answer(parse_qs(text)["query"][0])
            self.send_response(fake.status)
            self.end_headers()
            if body == b"slow":
                fake.ended.wait(300)
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        fake.ended.set()
        server.shutdown()
        thread.join()


def vector(rows: Iterable[tuple[Mapping[str, str], float]]) -> bytes:
    """Return the answer that has these series."""
    result = [{"metric": dict(labels), "value": [0, str(value)]} for labels, value in rows]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data}).encode()
