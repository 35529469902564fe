"""With which variables and limits ranks run: those of a list, and never a secret.

A rank's environment is what it was started with, so this says how the job was launched on this
node. What all ranks of the node have in common is one value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from peerwatch_common.settings.secrets import is_secret_variable, without_logins
from peerwatch_exporter.catalog.config_keys import (
    HASHED_VARIABLES,
    LIMITS,
    UNLIKE_VARIABLES,
    VARIABLE_NAMES,
    VARIABLE_PREFIXES,
)
from peerwatch_exporter.catalog.config_values import ConfigValues, digest
from peerwatch_exporter.sources.host.process_files import read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from peerwatch_exporter.sources.host.processes import ProcessTable
    from peerwatch_exporter.sources.jobs.known_ranks import KnownRank

# More ranks than any node has GPUs, and more variables than anybody sets.
_MOST_RANKS, _MOST_VARIABLES = 64, 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_GPU_UUIDS = re.compile(r"(?:GPU|MIG)-")
UNSET = "(unset)"
"""Value of a variable that a rank does not have and another one of its node has."""


def chosen_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the list, with values that are fit to be published."""
    names = [name for name in sorted(environment) if _is_chosen(name)][:_MOST_VARIABLES]
    return {name: _shown(name, environment[name]) for name in names}


def _is_chosen(name: str) -> bool:
    listed = name in VARIABLE_NAMES or name.startswith(VARIABLE_PREFIXES)
    if not listed or name in UNLIKE_VARIABLES:
        return False
    # Whatever it begins with: such a variable is never published.
    return _NAME.fullmatch(name) is not None and not is_secret_variable(name)


def _shown(name: str, value: str) -> str:
    if name in HASHED_VARIABLES:
        entries = value.count(":") + 1 if value else 0
        return f"{digest(value)}, {entries} {'entry' if entries == 1 else 'entries'}"
    if name.endswith("VISIBLE_DEVICES") and _GPU_UUIDS.search(value):
        return f"{value.count(',') + 1} by UUID"
    return without_logins(value) or "(empty)"


class RankConfiguration:
    """Reads variables and limits of the ranks' main processes.

    Parameters
    ----------
    table
        The node's processes.
    procfs
        Where they are.
    """

    def __init__(self, table: ProcessTable, procfs: Path) -> None:
        self._table = table
        self._procfs = procfs

    def read(
        self, ranks: Iterable[KnownRank], most: int, problems: list[Exception]
    ) -> dict[str, ConfigValues]:
        """Return the values of each job, at most so many together.

        Parameters
        ----------
        ranks
            The node's ranks; only living ones of a known job are read.
        most
            How many values.
        problems
            Takes why a rank could not be read.
        """
        jobs: dict[str, list[KnownRank]] = {}
        living = [rank for rank in ranks if rank.is_alive and rank.job_id and rank.pid is not None]
        for rank in living[:_MOST_RANKS]:
            jobs.setdefault(rank.job_id, []).append(rank)
        found = {}
        for job_id, of_job in jobs.items():
            found[job_id] = values = ConfigValues(most)
            self._read_job(of_job, values, problems)
            most -= len(values.rows())
        return found

    def _read_job(
        self, ranks: Iterable[KnownRank], values: ConfigValues, problems: list[Exception]
    ) -> None:
        variables: dict[str, dict[str, str]] = {}
        limits: dict[str, dict[str, str]] = {}
        for rank in ranks:
            assert rank.pid is not None, "only ranks with a process are read"
            local = str(rank.rank)
            try:
                environment = self._table.environment(rank.pid)
            except OSError as error:
                problems.append(error)
            else:
                if environment:
                    local = _local_rank(environment, local, variables)
                    variables[local] = chosen_variables(environment)
            try:
                limits[local] = _limits(read_file(f"{self._procfs}/{rank.pid}/limits"))
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError as error:
                problems.append(error)
        if variables:
            values.add("rank.environment", "read")
        for name in sorted({name for each in variables.values() for name in each}):
            by_rank = {local: each.get(name, UNSET) for local, each in variables.items()}
            values.add_devices("rank", name, by_rank)
        for name, _ in LIMITS:
            values.add_devices(
                "rank", name, {local: e[name] for local, e in limits.items() if name in e}
            )


def _local_rank(environment: Mapping[str, str], rank: str, taken: Mapping[str, object]) -> str:
    """Return the rank's number on this node, by which ranks of nodes are compared."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        local = environment.get(name, "")
        if local.isascii() and local.isdigit() and len(local) < 6 and local not in taken:
            return local
    return rank


def _limits(content: bytes) -> dict[str, str]:
    """Return the soft limits by our name, of those that there are."""
    lines = content.decode("utf-8", "replace").splitlines()
    found = {}
    for name, begin in LIMITS:
        for line in lines:
            if line.startswith(begin) and (fields := line[len(begin) :].split()):
                found[name] = fields[0]
                break
    return found
