"""What one provider knows about the node's training jobs; ``job_merge`` makes jobs of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from peerwatch_exporter.sources.gpu.identity import GpuIdentity


class ClaimedGpu(NamedTuple):
    """A GPU or a slice of one, as far as it is known.

    ``number`` is None for a MIG slice named by its uuid (only the driver knows whose slice it is)
    and for a board the driver has not named yet.
    """

    number: int | None
    uuid: str = ""

    @property
    def label(self) -> str:
        """The value of the label ``gpu``."""
        return "" if self.number is None else str(self.number)


class Pod(NamedTuple):
    """A container of a pod, or of no known one if ``container`` is empty."""

    namespace: str
    name: str
    container: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What a provider knows of one process, job or pod; what it does not know is empty.

    Parameters
    ----------
    provider
        Where it comes from.
    job_id, scheduler
        The job, and which scheduler named it.
    alias
        Another id of the same job.
    explicit
        The job chose its id itself, for Peerwatch.
    user
        Who runs it: a name, or else a number.
    gpus
        GPUs it holds.
    possible_gpus
        GPUs it holds unless somebody knows better.
    pid
        The process this is about.
    pod
        The container it is, or holds.
    pod_uid, container_id
        The container its control group names.
    pod_hint
        (pod, namespace) as the process itself calls them, right or wrong.
    in_pod
        Whether the process runs in a pod; None if that is not known.
    """

    provider: str
    job_id: str = ""
    scheduler: str = ""
    alias: str = ""
    explicit: bool = False
    user: str = ""
    gpus: tuple[ClaimedGpu, ...] = ()
    possible_gpus: tuple[ClaimedGpu, ...] = ()
    pid: int | None = None
    pod: Pod | None = None
    pod_uid: str = ""
    container_id: str = ""
    pod_hint: tuple[str, str] = ("", "")
    in_pod: bool | None = None


class ProviderAnswer(NamedTuple):
    """What a provider knows, and the error if that is not all it should know."""

    claims: Sequence[Claim]
    error: Exception | None = None


class Provider(Protocol):
    """One source of knowledge about jobs."""

    name: str

    def claims(self) -> ProviderAnswer | None:
        """Return what is known now; None if there is nothing to ask on this node.

        Raises
        ------
        Exception
            If it cannot be asked; the other providers are not touched.
        """


class Boards:
    """The node's GPUs by index and by uuid.

    Parameters
    ----------
    identities
        The GPUs that the driver lists.
    """

    def __init__(self, identities: Sequence[GpuIdentity]) -> None:
        # A board that took the place of another has the index now.
        self._by_index: Mapping[int, str] = {board.index: board.uuid for board in identities}
        self._by_uuid: Mapping[str, int] = {
            uuid: index for index, uuid in self._by_index.items() if uuid
        }

    def gpu(self, index: int) -> ClaimedGpu:
        """Return the GPU with this index."""
        return ClaimedGpu(index, self._by_index.get(index, ""))

    def find(self, uuid: str) -> ClaimedGpu | None:
        """Return the board that a uuid, or the only one that its beginning, names."""
        if uuid in self._by_uuid:
            return ClaimedGpu(self._by_uuid[uuid], uuid)
        if not uuid.startswith("GPU-") or len(uuid) < 6:
            return None
        found = [known for known in self._by_uuid if known.startswith(uuid)]
        return ClaimedGpu(self._by_uuid[found[0]], found[0]) if len(found) == 1 else None

    def __len__(self) -> int:
        return len(self._by_index)
