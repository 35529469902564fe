"""Runs Slurm's commands, each within its time, and never believes half an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from peerwatch_common.logs import one_line
from peerwatch_responder.action import UnknownError
from peerwatch_responder.child_process import run_child

if TYPE_CHECKING:
    from collections.abc import Mapping

# Chosen: 20,000 jobs with all their fields, 13 KiB each.
_MAX_BYTES = 256 * 1024**2
# As much as is quoted of a line of a log (redact.LONGEST).
_SHOWN_CHARACTERS = 300
# Before a request was sent, by slurm_errno's texts: nothing was done.
_UNSENT = (
    "unable to contact slurm controller (connect failure)",
    "unable to contact slurm controller (send failure)",
    "connection refused",
    "slurm_persist_conn_open",
    "munge",
    "authentication credential",
    "protocol authentication error",
)
# The controller's word that it was not done, and would not be.
_REJECTED = (
    "invalid",
    "access/permission denied",
    "is no longer pending",
    "is pending execution",
    "already completing",
    "already finished",
    "presently disabled",
    "not heterogeneous job leader",
    "only batch jobs",
)


class Reply(NamedTuple):
    """What became of a request.

    Parameters
    ----------
    result
        ``taken``: Slurm says that it was done. ``unsent``: it never came to Slurm. ``rejected``:
        Slurm says that it was not done. ``unclear``: anything else.
    text
        What was answered.
    """

    result: Literal["taken", "unsent", "rejected", "unclear"]
    text: str


class Commands:
    """Slurm's commands.

    Parameters
    ----------
    folder
        Where they are.
    configuration
        Slurm's settings; None: where the commands look for them.
    timeout_seconds
        Longest run of one.
    """

    def __init__(self, folder: Path, configuration: Path | None, timeout_seconds: float) -> None:
        self._folder = folder
        self._timeout_seconds = timeout_seconds
        # None of our environment: it may name another cluster, or change what is printed.
        self._environment = {"PATH": f"{folder}:/usr/bin:/bin", "LC_ALL": "C"}
        if configuration is not None:
            self._environment["SLURM_CONF"] = str(configuration)

    def ask(self, program: str, *arguments: str) -> str:
        """Return what a command prints.

        Raises
        ------
        UnknownError
            If it fails in any way.
        """
        status, output, errors = self._run(program, arguments)
        if status is None:
            raise UnknownError(f"{program} did not end within {self._timeout_seconds:g} s.")
        if status != 0:
            raise UnknownError(f"{program} ends with status {status}: {_shown(errors or output)}")
        return output

    def ask_json(self, program: str, what: str, *arguments: str) -> list[dict[str, Any]]:
        """Return a list that a command prints as JSON; see ``ask_content``."""
        return list_in(self.ask_content(program, *arguments), program, what)

    def ask_content(self, program: str, *arguments: str) -> dict[str, Any]:
        """Return the JSON object that a command prints.

        Without a controller Slurm 22.05 prints an empty list and ends with status 0; only its
        list of errors says so.

        Raises
        ------
        UnknownError
            If it fails in any way, or says that it did.
        """
        output = self.ask(program, *arguments, "--json")
        try:
            content = json.loads(output)
        except (ValueError, RecursionError):
            raise UnknownError(f"{program} prints no JSON: {_shown(output)}") from None
        if not isinstance(content, dict):
            raise UnknownError(f"{program} prints no JSON object: {_shown(output)}")
        if content.get("errors"):
            errors = json.dumps(content["errors"])
            raise UnknownError(f"{program} could not ask Slurm: {_shown(errors)}")
        return content

    def change(self, *arguments: str) -> Reply:
        """Have ``scontrol`` change something; return what became of it."""
        try:
            status, output, errors = self._run("scontrol", arguments)
        except UnknownError as error:
            return Reply("unsent", str(error))
        if status is None:
            return Reply("unclear", f"scontrol did not end within {self._timeout_seconds:g} s.")
        text = _shown(errors or output)
        if status == 0:
            return Reply("taken", text or "taken")
        lower = text.lower()
        if any(each in lower for each in _UNSENT):
            return Reply("unsent", text)
        if any(each in lower for each in _REJECTED):
            return Reply("rejected", text)
        return Reply("unclear", f"scontrol ends with status {status}: {text or 'without a word'}")

    def _run(self, program: str, arguments: tuple[str, ...]) -> tuple[int | None, str, str]:
        """Return status (None: it did not end), output and errors.

        Raises
        ------
        UnknownError
            If it cannot be started.
        """
        path = self._folder / program
        try:
            status, output, errors = run_child(
                [str(path), *arguments], self._timeout_seconds, environment=self._environment
            )
        except OSError as error:
            raise UnknownError(f"{path}: {error.strerror}; see cluster.folder.") from error
        if len(output) > _MAX_BYTES:
            raise UnknownError(f"{program} prints more than {_MAX_BYTES} bytes.")
        return status, output.decode(errors="replace"), errors.decode(errors="replace")


def list_in(content: Mapping[str, Any], program: str, what: str) -> list[dict[str, Any]]:
    """Return a list of what a command printed.

    Raises
    ------
    UnknownError
        If it has no such list.
    """
    found = content.get(what)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        shown = _shown(json.dumps(content))
        raise UnknownError(f"{program} prints no list of {what}: {shown}")
    return found


def _shown(text: str) -> str:
    return one_line(text.strip())[:_SHOWN_CHARACTERS]
