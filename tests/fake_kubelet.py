"""A kubelet's pod-resources socket, served by the real gRPC library, with messages made by hand."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def varint(number: int) -> bytes:
    """Return a number as Protocol Buffers write it."""
    content = bytearray()
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    content.append(number)
    return bytes(content)


def field(number: int, content: str | bytes) -> bytes:
    """Return a string or message field."""
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def devices(resource: str, *device_ids: str) -> bytes:
    """Return a ContainerDevices message, with its NUMA node."""
    topology = field(3, field(1, b"\x08\x01"))
    return field(1, resource) + b"".join(field(2, each) for each in device_ids) + topology


def container(name: str, *held: bytes) -> bytes:
    """Return a ContainerResources message, with CPUs, memory and a dynamic resource."""
    cpus = field(3, bytes([2, 3, 4]))
    memory = field(4, field(1, "memory") + b"\x10" + varint(1 << 40))
    dynamic = field(5, field(2, "claim") + field(4, field(2, "gpu.nvidia.com")))
    return field(1, name) + b"".join(field(2, each) for each in held) + cpus + memory + dynamic


def pod(namespace: str, name: str, *containers: bytes) -> bytes:
    """Return a PodResources message, with a field of a later version."""
    later = b"\x31" + bytes(8) + b"\x3d" + bytes(4)
    return field(1, name) + field(2, namespace) + b"".join(field(3, c) for c in containers) + later


def pods(*listed: bytes) -> bytes:
    """Return a ListPodResourcesResponse message."""
    return b"".join(field(1, each) for each in listed)


@contextlib.contextmanager
def kubelet(
    path: Path,
    answer: bytes | Callable[[bytes, grpc.ServicerContext], bytes],
    *,
    method: str = "List",
) -> Iterator[None]:
    """Serve ``answer``, or what it returns when called, on a Unix socket."""

    def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
        return answer if isinstance(answer, bytes) else answer(request, context)

    handler = grpc.method_handlers_generic_handler(
        "v1.PodResourcesLister", {method: grpc.unary_unary_rpc_method_handler(handle)}
    )
    options = [("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(2), handlers=(handler,), options=options)
    assert server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()
