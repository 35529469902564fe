"""How operators name the pods of one training job, and the job's name from a pod's.

A job of many pods must have one ``job_id`` on all of its nodes, and the kubelet reports names only.
Random endings use Kubernetes' own alphabet, which has no vowels and neither 0, 1 nor 3; that
distinguishes them from words.
"""

from __future__ import annotations

import re

# Kubernetes' limits: a pod's name is a DNS subdomain, a namespace a DNS label (RFC 1123).
LONGEST_POD_NAME = 253
_LONGEST_NAMESPACE = 63
# Chosen: several times the 110 pods that a kubelet runs by default.
_CACHED_NAMES = 1024

_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_INDEX = "[0-9]{1,4}"
_ROLES = (
    "master|worker|workers|launcher|chief|ps|evaluator|server|scheduler|head|leader|node|trainer"
)
# The first that fits the whole name decides.
_RULES: tuple[re.Pattern[str], ...] = tuple(
    re.compile(rule)
    for rule in (
        # RayJob: train-raycluster-x2k9d-workers-worker-b4wmz
        rf"(?P<job>.+?)-raycluster-{_RANDOM}{{5}}-.+",
        # RayJob by KubeRay 1.4 and later: train-x2k9d-workers-worker-b4wmz, train-x2k9d-head
        rf"(?P<job>.+)-{_RANDOM}{{5}}-(?:head(?:-{_RANDOM}{{5}})?|.+-worker-{_RANDOM}{{5}})",
        # PyTorchJob, MPIJob, Volcano: train-master-0, train-worker-3, train-launcher;
        # JobSet and TrainJob: train-node-0-1-b4wmz; RayCluster: train-head-b4wmz
        rf"(?P<job>.+?)-(?:{_ROLES})(?:-{_INDEX}){{0,2}}(?:-{_RANDOM}{{5}})?",
        # SkyPilot, whose first pod is train-2ea4852b-head: train-2ea4852b-worker1
        rf"(?P<job>.+?)-worker{_INDEX}",
        # Deployment: train-6d4b9c7f5d-x2k9d
        rf"(?P<job>.+)-{_RANDOM}{{6,10}}-{_RANDOM}{{5}}",
        # Indexed Job and JobSet: train-3-b4wmz, train-slices-0-1-b4wmz; Job: train-b4wmz
        rf"(?P<job>.+?)(?:-{_INDEX}){{0,2}}-{_RANDOM}{{5}}",
        # StatefulSet and LeaderWorkerSet: train-3, train-0-3
        rf"(?P<job>.+?)(?:-{_INDEX}){{1,2}}",
    )
)


class PodNaming:
    """Gives pods the job id of their training job.

    Parameters
    ----------
    setting
        ``job``: ``<namespace>/<job>`` by the rules above. ``pod``: ``<namespace>/<pod>``.
        Anything else is a regular expression that is matched with ``<namespace>/<pod>``; what its
        group ``job`` matches is the job id, and a pod it does not fit is a job of its own.
    """

    def __init__(self, setting: str) -> None:
        self._setting = setting
        self._pattern = None if setting in ("job", "pod") else re.compile(setting)
        self._known: dict[tuple[str, str], str] = {}

    def job_id(self, namespace: str, pod: str) -> str:
        """Return the job id of a pod."""
        key = namespace[:_LONGEST_NAMESPACE], pod[:LONGEST_POD_NAME]
        if key not in self._known:
            if len(self._known) >= _CACHED_NAMES:
                self._known.clear()
            self._known[key] = self._derive(*key)
        return self._known[key]

    def _derive(self, namespace: str, pod: str) -> str:
        name = f"{namespace}/{pod}"
        if self._pattern is not None:
            match = self._pattern.fullmatch(name)
            return (match["job"] if match else None) or name
        if self._setting == "job":
            matches = (rule.fullmatch(pod) for rule in _RULES)
            match = next((found for found in matches if found), None)
            return name if match is None else f"{namespace}/{match['job']}"
        return name
