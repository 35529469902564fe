"""What is said of an address at which no Prometheus is: over real sockets, with and without TLS."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from peerwatch_detector.__main__ import main
from peerwatch_detector.reading.transport.hints import hint_of_answer
from web_client import Authority


@contextmanager
def listening(authority: Authority | None) -> Iterator[int]:
    """Serve nothing on a free port, under TLS if an authority is given."""
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if authority is not None:
        import ssl

        authority.issue("server")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        folder = authority.directory
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("scheme", "secured", "said"),
    [
        ("https", False, "set prometheus.url to http://"),
        ("http", True, "set prometheus.url to https://"),
        ("https", True, "set REQUESTS_CA_BUNDLE"),
    ],
)
def test_the_wrong_scheme_is_told_with_the_right_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str, secured: bool, said: str
) -> None:
    with listening(Authority(tmp_path) if secured else None) as port:
        span = ["--job-id", "j", "--start", "0", "--end", "900"]
        url = f"{scheme}://127.0.0.1:{port}"
        assert 1 == main(["export-case", str(tmp_path / "c"), *span, "--prometheus", url])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("status", [400, 422, 503])
def test_a_query_that_names_another_program_is_not_taken_for_it(status: int) -> None:
    said = r'error when executing query="x{job!~\"grafana|alertmanager\"}": too many points'
    assert "" == hint_of_answer(status, said)


@pytest.mark.parametrize(
    ("status", "said", "hint"),
    [
        (410, "The Alertmanager v1 API was removed", "this is an Alertmanager"),
        (404, "<html><title>Grafana</title></html>", "this is a Grafana"),
        (200, "<html><title>Grafana</title></html>", "this is a Grafana"),
    ],
)
def test_a_program_that_names_itself_is_told(status: int, said: str, hint: str) -> None:
    assert hint in hint_of_answer(status, said)
