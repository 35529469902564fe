"""The kubelet's pod-resources socket: a real gRPC server, and every kind of wrong answer."""

from __future__ import annotations

import builtins
import contextlib
import socket
import sys
import threading
import time

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from hypothesis import given
from hypothesis import strategies as st

from fake_kubelet import container, devices, field, kubelet, pod, pods, varint
from hardware_cases import FakeClock
from peerwatch_exporter.sources.gpu.identity import GpuIdentity
from peerwatch_exporter.sources.jobs.claims import Boards, ClaimedGpu, Pod
from peerwatch_exporter.sources.jobs.grpc_unary import GrpcError, UnaryClient
from peerwatch_exporter.sources.jobs.pod_resources import (
    ContainerDevices,
    PodResourcesProvider,
    decode_pods,
    gpu_of,
)
from peerwatch_exporter.sources.jobs.protobuf import MalformedMessageError

METHOD = "/v1.PodResourcesLister/List"
UUIDS = tuple(f"GPU-{n}0000000-1111-2222-3333-444444444444" for n in range(8))
MIG = "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
BOARDS = Boards([GpuIdentity(index, uuid) for index, uuid in enumerate(UUIDS)])
LISTED = pods(
    pod(
        "ml",
        "train-worker-0",
        container("sidecar"),
        container("pytorch", devices("nvidia.com/gpu", *UUIDS[:2]), devices("rdma/hca", "mlx5_0")),
    ),
    pod("kube-system", "coredns-5d78c9869d-4xkzm", container("coredns")),
    pod("ml", "empty"),
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kubelet.sock"


def client(path, *, deadline_seconds=60.0, max_bytes=1 << 24):
    return UnaryClient(
        path,
        METHOD,
        deadline_seconds=deadline_seconds,
        max_bytes=max_bytes,
        monotonic=time.monotonic,
    )


def failure(path, **options):
    with pytest.raises(GrpcError) as caught:
        client(path, **options).call(b"")
    return caught.value


def saying(data):
    """Return what takes the request and answers with these bytes."""

    def talk(connection):
        connection.recv(65536)
        connection.sendall(data)

    return talk


@contextlib.contextmanager
def raw_server(path, *talk):
    """Serve each connection by the next function, as far as they go."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve():
            for each in talk:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    each(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(timeout=300)
        assert not thread.is_alive()


def http2(respond):
    """Return what talks HTTP/2 until the request is there, and then does ``respond``."""

    def talk(connection):
        http = H2Connection(H2Configuration(client_side=False))
        http.initiate_connection()
        connection.sendall(http.data_to_send())
        while True:
            for event in http.receive_data(connection.recv(65536)):
                if isinstance(event, RequestReceived):
                    respond(http, event.stream_id)
                    connection.sendall(http.data_to_send())
                    connection.settimeout(60)
                    while connection.recv(65536):
                        pass
                    return

    return talk


def test_containers_and_their_gpus_are_read_from_a_grpc_server(path):
    with kubelet(path, LISTED):
        answer = client(path).call(b"")
    assert [
        ContainerDevices(Pod("ml", "train-worker-0", "sidecar"), ()),
        ContainerDevices(Pod("ml", "train-worker-0", "pytorch"), UUIDS[:2]),
        ContainerDevices(Pod("kube-system", "coredns-5d78c9869d-4xkzm", "coredns"), ()),
        ContainerDevices(Pod("ml", "empty", ""), ()),
    ] == decode_pods(answer)


def test_request_has_deadline_and_empty_message(path):
    seen = []

    def answer(request, context):
        seen.append((request, context.time_remaining()))
        return b""

    with kubelet(path, answer):
        assert b"" == client(path, deadline_seconds=20).call(b"")
    ((request, remaining),) = seen
    assert b"" == request
    assert 0 < remaining <= 20


def test_answer_larger_than_the_flow_control_window_arrives_whole(path):
    listed = pods(*(pod("ml", f"pod-{n}", container("c" * 200)) for n in range(4000)))
    assert len(listed) > 16 * 65535
    with kubelet(path, listed):
        assert listed == client(path).call(b"")


def test_answer_larger_than_allowed_is_refused(path):
    with kubelet(path, bytes(200_000)):
        assert "grpc_too_large" == failure(path, max_bytes=100_000).error_class
        assert bytes(200_000) == client(path, max_bytes=200_000).call(b"")


def test_status_of_the_server_is_the_error_class(path):
    def refuse(request, context):
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rate limit\u2026")

    with kubelet(path, refuse):
        error = failure(path)
    assert "grpc_resource_exhausted" == error.error_class
    assert "rate limit\u2026" in str(error)


def test_kubelet_without_the_method_says_so(path):
    with kubelet(path, b"", method="Get"):
        assert "grpc_unimplemented" == failure(path).error_class


def test_server_that_does_not_answer_costs_the_deadline(path):
    release = threading.Event()

    def wait(request, context):
        release.wait(60)
        return b""

    with kubelet(path, wait):
        assert "grpc_deadline_exceeded" == failure(path, deadline_seconds=0.2).error_class
        release.set()


def test_nobody_behind_the_socket_is_unavailable(path):
    assert "grpc_unavailable" == failure(path).error_class
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    assert "grpc_unavailable" == failure(path).error_class


@pytest.mark.parametrize(
    ("talk", "error_class"),
    [
        pytest.param(lambda c: c.recv(65536), "grpc_unavailable", id="hangs up"),
        pytest.param(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "grpc_unavailable", id="HTTP/1"),
        pytest.param(saying(b"\0\0\x01\0\0\0\0\0\0x"), "grpc_malformed", id="no HTTP/2"),
        pytest.param(http2(lambda h, s: h.reset_stream(s, 7)), "grpc_reset", id="stream reset"),
        pytest.param(http2(lambda h, s: h.close_connection(2)), "grpc_reset", id="goaway"),
        pytest.param(
            http2(lambda h, s: h.send_headers(s, [(":status", "503")], end_stream=True)),
            "grpc_malformed",
            id="HTTP error",
        ),
        pytest.param(
            http2(lambda h, s: h.send_headers(s, [(":status", "200")], end_stream=True)),
            "grpc_unknown",
            id="no status",
        ),
        pytest.param(
            http2(
                lambda h, s: h.send_headers(
                    s, [(":status", "200"), ("grpc-status", "99999999999")], end_stream=True
                )
            ),
            "grpc_unknown",
            id="no known status",
        ),
        pytest.param(
            http2(
                lambda h, s: h.send_headers(
                    s, [(":status", "200"), ("grpc-status", "0")], end_stream=True
                )
            ),
            "grpc_malformed",
            id="no message",
        ),
    ],
)
def test_broken_exchange_is_an_error_of_its_own_kind(path, talk, error_class):
    with raw_server(path, talk):
        error = failure(path)
    assert (error_class, True) == (error.error_class, bool(str(error)))


@pytest.mark.parametrize("prefix", [b"\x01\0\0\0\x02ab", b"\0\0\0\0\x03ab", b"\0\0\0\0\x01ab"])
def test_message_of_wrong_length_or_compressed_is_malformed(path, prefix):
    def respond(http, stream):
        http.send_headers(stream, [(":status", "200")])
        http.send_data(stream, prefix)
        http.send_headers(stream, [("grpc-status", "0")], end_stream=True)

    with raw_server(path, http2(respond)):
        assert "grpc_malformed" == failure(path).error_class


@given(data=st.binary(min_size=1, max_size=200))
def test_any_bytes_instead_of_an_answer_are_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("raw") / "s"
    with raw_server(path, saying(data)):
        assert failure(path).error_class.startswith("grpc_")


def test_missing_package_is_named(path, monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name.startswith("h2"):
            raise ImportError(name)
        return real(name, *rest)

    for name in [name for name in sys.modules if name == "h2" or name.startswith("h2.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    error = failure(path)
    assert "package_missing" == error.error_class
    assert "pip install -c constraints.txt '.[kubernetes]'" in str(error)


@pytest.mark.parametrize(
    ("device_id", "gpu"),
    [
        (UUIDS[3], ClaimedGpu(3, UUIDS[3])),
        (f"{UUIDS[3]}::7", ClaimedGpu(3, UUIDS[3])),
        (MIG, ClaimedGpu(None, MIG)),
        (f"{MIG}::2", ClaimedGpu(None, MIG)),
        (f"MIG-{UUIDS[5]}/3/0", ClaimedGpu(5, UUIDS[5])),
        ("nvidia4", ClaimedGpu(4, UUIDS[4])),
        ("nvidia4/gi3", ClaimedGpu(4, UUIDS[4])),
        ("nvidia4/gi3/vgpu0", ClaimedGpu(4, UUIDS[4])),
        ("nvidia4/vgpu1", ClaimedGpu(4, UUIDS[4])),
        ("GPU-99999999-0000", ClaimedGpu(None, "GPU-99999999-0000")),
    ],
)
def test_device_id_names_a_gpu(device_id, gpu):
    listed = pods(pod("ml", "p", container("c", devices("nvidia.com/gpu", device_id))))
    ((_, (found,)),) = [(each.pod, each.device_ids) for each in decode_pods(listed)]
    assert gpu == gpu_of(found, BOARDS)


def test_devices_of_other_plugins_are_left_out():
    held = devices("rdma/hca", "mlx5_0", "0", "0000:18:00.0", "GPUs", "nvidia", "")
    (found,) = decode_pods(pods(pod("ml", "p", container("c", held))))
    assert () == found.device_ids


def test_names_are_bounded_and_printable():
    (found,) = decode_pods(pods(pod("n\n", "p" * 10_000, container("\xff"))))
    assert ("n\\n", "p" * 253) == (found.pod.namespace, found.pod.name)
    (found,) = decode_pods(field(1, field(1, b"\xff\xfe")))
    assert found.pod.name.isprintable()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"\x0a", id="no length"),
        pytest.param(b"\x0a\x05abc", id="too short"),
        pytest.param(b"\x0b", id="group"),
        pytest.param(b"\x0f", id="unknown wire type"),
        pytest.param(b"\xff" * 11, id="endless number"),
        pytest.param(b"\x09\0\0", id="half a fixed64"),
        pytest.param(b"\x0a" + varint(1 << 62), id="length of exabytes"),
        pytest.param(pods(*([b""] * 4097)), id="too many pods"),
        pytest.param(
            pods(pod("n", "p", container("c", devices("r", *[UUIDS[0]] * 4097)))),
            id="too many devices",
        ),
    ],
)
def test_malformed_message_is_refused(answer):
    with pytest.raises(MalformedMessageError):
        decode_pods(answer)


def decoded_or_refused(answer):
    try:
        found = decode_pods(answer)
    except MalformedMessageError:
        return
    for each in found:
        assert all(part.isprintable() and len(part) <= 1012 for part in each.pod)
        assert all(gpu_of(device, BOARDS) for device in each.device_ids)


@given(st.binary())
def test_any_bytes_are_decoded_or_refused(answer):
    decoded_or_refused(answer)


@given(st.integers(0, len(LISTED)))
def test_truncated_answer_is_decoded_or_refused(length):
    decoded_or_refused(LISTED[:length])


@given(st.lists(st.tuples(st.integers(0, len(LISTED) - 1), st.integers(0, 255)), max_size=20))
def test_mutated_answer_is_decoded_or_refused(changes):
    answer = bytearray(LISTED)
    for position, byte in changes:
        answer[position] = byte
    decoded_or_refused(bytes(answer))


class FakeUnary:
    """Answers with the next of its answers, the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = 0

    def call(self, request):
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def provider(path, clock, unary):
    path.touch()
    return PodResourcesProvider(
        path, lambda: BOARDS, deadline_seconds=1, monotonic=clock, client=unary
    )


def held(answer):
    return {claim.pod.name: claim.gpus for claim in answer.claims if claim.gpus}


def test_kubelet_is_asked_every_ten_seconds(path):
    clock = FakeClock()
    unary = FakeUnary(LISTED)
    pods_of = provider(path, clock, unary)
    for _ in range(21):
        pods_of.claims()
        clock.now += 1
    assert 3 == unary.calls


def test_last_answer_holds_while_the_kubelet_restarts_but_not_for_ever(path):
    clock = FakeClock()
    down = GrpcError("grpc_unavailable", "gone")
    pods_of = provider(path, clock, FakeUnary(LISTED, down))
    known = {"train-worker-0": (ClaimedGpu(0, UUIDS[0]), ClaimedGpu(1, UUIDS[1]))}
    answer = pods_of.claims()
    assert (known, None) == (held(answer), answer.error)
    path.unlink()
    clock.now += 10
    answer = pods_of.claims()
    assert (known, down) == (held(answer), answer.error)
    clock.now += 301
    answer = pods_of.claims()
    assert ({}, down) == (held(answer), answer.error)


def test_kubelet_that_comes_late_is_found(path):
    pods_of = PodResourcesProvider(path, lambda: BOARDS, deadline_seconds=60, monotonic=FakeClock())
    assert None is pods_of.claims()
    with kubelet(path, LISTED):
        assert ["train-worker-0"] == list(held(pods_of.claims()))


def test_garbled_answer_is_an_error_and_the_last_one_stays(path):
    clock = FakeClock()
    pods_of = provider(path, clock, FakeUnary(LISTED, b"\x0b", LISTED))
    pods_of.claims()
    clock.now += 10
    answer = pods_of.claims()
    assert "malformed_message" == answer.error.error_class
    assert ["train-worker-0"] == list(held(answer))
    clock.now += 10
    assert None is pods_of.claims().error


def test_no_socket_is_asked_where_it_is_set_to_null():
    pods_of = PodResourcesProvider(None, lambda: BOARDS, deadline_seconds=1, monotonic=FakeClock())
    assert None is pods_of.claims()
