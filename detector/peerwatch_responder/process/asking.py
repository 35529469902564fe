"""Asks a running responder, or its journal where none runs."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import requests

from peerwatch_common.errors import PeerwatchError
from peerwatch_common.settings.secret_file import read_secret
from peerwatch_responder.audit.journal import Journal
from peerwatch_responder.policy.state import State
from peerwatch_responder.run.books import Books
from peerwatch_responder.run.orders import OrderError, obey
from peerwatch_responder.run.site import ORDERS, STATUS, status_of

if TYPE_CHECKING:
    import argparse

    from peerwatch_responder.settings.load import Settings

# Chosen: a responder answers from memory, and an order waits for no more than a row on a disk.
_SECONDS = 60.0
# Its node may be checked before, for as long as timeout_seconds of a check may be.
_UNDO_SECONDS = 7200.0
# Exit status; 1 and 2 are errors of the program and of its flags.
_REFUSED = 3


class AskError(PeerwatchError):
    """The responder could not be asked; the message says why."""


def ask(options: argparse.Namespace, settings: Settings) -> int:
    """Do what a command asks for; return the exit status."""
    if options.command in {"pause", "resume", "undo"}:
        return _order(options, settings)
    status = _status(options, settings)
    if options.json:
        sys.stdout.write(json.dumps(status) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _LINES[options.command](status))
    return 0


def _order(options: argparse.Namespace, settings: Settings) -> int:
    order: dict[str, object] = {"order": options.command}
    for name in ("reason", "key", "unchecked"):
        if hasattr(options, name):
            order[name] = getattr(options, name)
    try:
        answer = _request(options, settings, "POST", ORDERS, order)
        results = _obeyed_offline(order, settings) if answer is None else answer["results"]
    except OrderError as error:
        sys.stderr.write(f"peerwatch-responder: {error}\n")
        return _REFUSED
    if options.json:
        sys.stdout.write(json.dumps({"results": results}) + "\n")
    else:
        sys.stdout.writelines(f"{each}\n" for each in results)
    return 0


def _obeyed_offline(order: dict[str, object], settings: Settings) -> list[str]:
    with Journal(settings.config.journal) as journal:
        books, probation = Books(journal, journal.rows), settings.config.policy.probation
        return obey(order, books, settings.actions, probation)


def _status(options: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    answer = _request(options, settings, "GET", STATUS, None)
    if answer is not None:
        return dict(answer)
    if not settings.config.journal.exists():
        return status_of(State(), None)
    with Journal(settings.config.journal) as journal:
        return status_of(Books(journal, journal.rows).state, None)


def _request(
    options: argparse.Namespace, settings: Settings, method: str, path: str, body: object
) -> Any:  # noqa: ANN401 - JSON
    """Return what the running responder answers; None: none runs where the settings say."""
    config = settings.config
    host = config.listen.address
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
    scheme = "https" if config.web.config_file is not None else "http"
    url = (options.url or f"{scheme}://{host}:{config.listen.port}").rstrip("/") + path
    headers = {}
    if config.web.token_file is not None:
        headers["Authorization"] = f"Bearer {read_secret(config.web.token_file)}"
    seconds = _UNDO_SECONDS if options.command == "undo" else _SECONDS
    try:
        response = requests.request(
            method, url, json=body, headers=headers, timeout=seconds, allow_redirects=False
        )
    except requests.ConnectionError as error:
        if options.url is None and "refused" in str(error):
            return None
        raise AskError(f"{url}: {error.__class__.__name__}; give its address with --url") from error
    except requests.RequestException as error:
        raise AskError(f"{url}: {error.__class__.__name__}") from error
    if response.status_code == 409:
        raise OrderError(response.text.strip())
    if response.status_code != 200:
        raise AskError(f"{url}: answers {response.status_code}: {response.text.strip()[:200]}")
    try:
        return response.json()
    except ValueError as error:
        raise AskError(f"{url}: is no responder: its answer is no JSON") from error


def _status_lines(status: dict[str, Any]) -> list[str]:
    lines = []
    if status["paused"] is not None:
        lines.append(f"Paused: {status['paused']}")
    if status["tripped_at"] is not None:
        lines.append(f"The breaker tripped {_time(status['tripped_at'])}; resume resets it.")
    current = [each for each in status["responses"] if each["status"] in {"planned", "acting"}]
    out = [
        each
        for each in status["responses"]
        if each["status"] in {"done", "stuck"} and each["returned_at"] is None and each["takes_out"]
    ]
    lines.append(f"{len(current)} responses are under way, {len(out)} nodes are out.")
    return lines + [_response_line(each) for each in (*current, *out)]


def _plan_lines(status: dict[str, Any]) -> list[str]:
    if not status["decisions"]:
        return ["No alert that a rule matches is known."]
    return [
        f"{each['verdict']:<7} {each['node'] or '-'}  {each['alert']}: {each['text']}"
        for each in status["decisions"]
    ]


def _history_lines(status: dict[str, Any]) -> list[str]:
    responses = status["responses"]
    return [_response_line(each) for each in responses] or ["There was no response."]


def _response_line(each: dict[str, Any]) -> str:
    what = ", ".join(each["actions"])
    return (
        f"{each['key']}  {_time(each['planned_at'])}  {each['status']:<8} {each['node']}  "
        f"job {each['job_id'] or '-'}  {what}  {each['text']}".rstrip()
    )


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


_LINES = {"status": _status_lines, "plan": _plan_lines, "history": _history_lines}
