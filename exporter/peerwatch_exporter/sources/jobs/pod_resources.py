"""Which container holds which GPU, as the kubelet reports it on its pod-resources socket.

Service ``v1.PodResourcesLister``, method ``List``. The kubelet knows pods by name and devices by
the ids of their device plugin: NVIDIA's gives uuids (``GPU-...``, ``MIG-...``), followed by
``::<number>`` where a GPU is shared by time slicing; Google's gives ``nvidia<index>``, followed by
``/gi<instance>`` for a MIG slice and ``/vgpu<number>`` for a shared GPU. Devices assigned by
dynamic resource allocation carry no id of a GPU and are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerwatch_common.logs import printable
from peerwatch_common.pod_names import LONGEST_POD_NAME
from peerwatch_exporter.sources.jobs.claims import Claim, ClaimedGpu, Pod, ProviderAnswer
from peerwatch_exporter.sources.jobs.grpc_unary import GrpcError, UnaryClient
from peerwatch_exporter.sources.jobs.protobuf import MalformedMessageError, chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peerwatch_exporter.sources.jobs.claims import Boards
    from peerwatch_exporter.sources.jobs.grpc_unary import Unary

_METHOD = "/v1.PodResourcesLister/List"
# The kubelet's own limit on these answers. A node has 110 pods by default: what lists far more is
# no kubelet.
_MAX_BYTES = 16 * 1024 * 1024
_MOST_DEVICES = 4096
_MOST_PODS = 4096
# Once in a scrape interval of 15 s: a pod runs for minutes at least.
_INTERVAL_SECONDS = 10.0
# While the kubelet restarts, its pods run on: chosen, an upgrade of it takes a minute or two.
_VALID_SECONDS = 300.0

_UUID = re.compile(r"(GPU-[0-9a-fA-F-]{8,40}|MIG-[0-9a-zA-Z/-]{8,80}?)(?:::[0-9]{1,6})?")
_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-fA-F-]{8,40})/[0-9]+/[0-9]+")
_NUMBERED = re.compile(r"nvidia([0-9]{1,3})(?:/gi[0-9]{1,3})?(?:/vgpu[0-9]{1,4})?")


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """A container and the ids of the GPUs it holds; most containers hold none."""

    pod: Pod
    device_ids: tuple[str, ...]


def decode_pods(answer: bytes) -> list[ContainerDevices]:
    """Return the containers of a ``ListPodResourcesResponse``; a pod without any counts as one.

    Raises
    ------
    MalformedMessageError
        If the answer is no such message, or lists more than a node can hold.
    """
    found: list[ContainerDevices] = []
    devices = 0
    for field, pod in chunks(answer):
        if field == 1:
            containers = _containers(pod)
            found += containers
            devices += sum(len(container.device_ids) for container in containers)
        if len(found) > _MOST_PODS or devices > _MOST_DEVICES:
            raise MalformedMessageError(
                f"more than {_MOST_PODS} containers or {_MOST_DEVICES} devices"
            )
    return found


def _containers(message: memoryview) -> list[ContainerDevices]:
    name = namespace = ""
    containers = []
    for field, content in chunks(message):
        if field == 1:
            name = _text(content)
        elif field == 2:
            namespace = _text(content)
        elif field == 3:
            containers.append(_container(content))
    return [
        ContainerDevices(Pod(namespace, name, container), device_ids)
        for container, device_ids in containers or [("", ())]
    ]


def _container(message: memoryview) -> tuple[str, tuple[str, ...]]:
    name = ""
    device_ids: list[str] = []
    for field, content in chunks(message):
        if field == 1:
            name = _text(content)
        elif field == 2:
            device_ids += _devices(content)
    return name, tuple(device_ids)


def _devices(message: memoryview) -> Iterator[str]:
    for field, content in chunks(message):
        if field == 2:
            device_id = _text(content)
            # Other plugins' devices have names of their own kind.
            if _UUID.fullmatch(device_id) or _NUMBERED.fullmatch(device_id):
                yield device_id


def _text(content: memoryview) -> str:
    return printable(
        bytes(content[: 4 * LONGEST_POD_NAME]).decode(errors="replace")[:LONGEST_POD_NAME]
    )


def gpu_of(device_id: str, boards: Boards) -> ClaimedGpu:
    """Return the GPU that a device id means; a MIG slice keeps its uuid and has no index."""
    if numbered := _NUMBERED.fullmatch(device_id):
        return boards.gpu(int(numbered[1]))
    match = _UUID.fullmatch(device_id)
    uuid = match[1] if match else device_id
    if old := _OLD_MIG.fullmatch(uuid):
        return boards.find(old[1]) or ClaimedGpu(None, uuid)
    return boards.find(uuid) or ClaimedGpu(None, uuid)


class PodResourcesProvider:
    """Pods as the kubelet has them, asked every 10 s.

    Parameters
    ----------
    path
        The socket; None to leave the kubelet alone. Where it does not exist there is no kubelet.
    boards
        The node's GPUs now.
    deadline_seconds
        For one call.
    monotonic
        Clock for the age of the answer.
    client
        Calls the kubelet; tests hand in their own.
    """

    name = "pod_resources"

    def __init__(
        self,
        path: Path | None,
        boards: Callable[[], Boards],
        *,
        deadline_seconds: float,
        monotonic: Callable[[], float],
        client: Unary | None = None,
    ) -> None:
        self._path = path
        self._boards = boards
        self._monotonic = monotonic
        self._client = client
        if client is None and path is not None:
            self._client = UnaryClient(
                path,
                _METHOD,
                deadline_seconds=deadline_seconds,
                max_bytes=_MAX_BYTES,
                monotonic=monotonic,
            )
        self._asked_at: float | None = None
        self._answered_at: float | None = None
        self._error: Exception | None = None
        self._containers: list[ContainerDevices] = []
        self._resolved_by: Boards | None = None
        self._answer = ProviderAnswer(())

    def claims(self) -> ProviderAnswer | None:
        """Return a claim for each container that holds a GPU, and for each pod without any.

        While the kubelet does not answer, what it said last holds for five minutes more.
        """
        if self._client is None or self._path is None:
            return None
        now = self._monotonic()
        if self._asked_at is None or now - self._asked_at >= _INTERVAL_SECONDS:
            if self._answered_at is None and not self._path.exists():
                return None
            self._asked_at = now
            self._resolved_by = None
            self._request(self._client, now)
        boards = self._boards()
        if boards is not self._resolved_by:
            self._resolved_by = boards
            claims = [self._claim(container, boards) for container in self._containers]
            self._answer = ProviderAnswer(claims, self._error)
        return self._answer

    def _claim(self, container: ContainerDevices, boards: Boards) -> Claim:
        return Claim(
            self.name,
            scheduler="kubernetes",
            pod=container.pod,
            gpus=tuple(dict.fromkeys(gpu_of(each, boards) for each in container.device_ids)),
            in_pod=True,
        )

    def _request(self, client: Unary, now: float) -> None:
        try:
            self._containers = decode_pods(client.call(b""))
            self._answered_at = now
            self._error = None
        except (GrpcError, MalformedMessageError, PermissionError) as error:
            self._error = error
            if self._answered_at is not None and now - self._answered_at > _VALID_SECONDS:
                self._containers = []
