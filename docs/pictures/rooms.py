"""The web UI's rooms and the notification, as they are at the end of a recording."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

from programs import Inbox

from peerwatch_demo.stack.process import StackError
from peerwatch_demo.stack.servers import find_program

FOLDER = "rooms"
PAGE = "page"
JOB, NODE = "llm-pretrain-31", "gpu-005"
_ADDRESSES = {
    "fleet": "/",
    "job": f"/jobs/{JOB}",
    "node": f"/nodes/{NODE}",
    "incidents": "/incidents",
    "actions": "/actions",
    "reliability": "/reliability",
}
_INCIDENT = re.compile(r'href="(/incidents/[^"]+)"')
_TEMPLATES = Path(__file__).resolve().parents[2] / "rules/templates/*.tmpl"
_PICTURE = re.compile(r'(?<=<img src=")[^"]+')
_SECONDS = 120.0
# The detector keeps what it read for so long.
_TRIES, _KEPT_SECONDS = 8, 20.0


def save(web: str, inbox: Inbox, folder: Path) -> None:
    """Keep each room, and the first page about the node, as files that need no server.

    Parameters
    ----------
    web
        Address of the web UI.
    inbox
        What Alertmanager sent.
    folder
        Does not exist yet.

    Raises
    ------
    StackError
        If no incident or no page is there: then the recording shows nothing.
    """
    folder.mkdir()
    for name, path in _ADDRESSES.items():
        (folder / f"{name}.html").write_bytes(_get_answered(web + path))
    link = _INCIDENT.search((folder / "job.html").read_text())
    if link is None:
        raise StackError(f"{web}{_ADDRESSES['job']} links to no incident: nothing was found there")
    (folder / "incident.html").write_bytes(_get_answered(web + link[1]))
    _save_page(inbox, folder)


def _save_page(inbox: Inbox, folder: Path) -> None:
    """Write the page's e-mail as the shipped templates make it, with its picture beside it."""
    about = [each for each in inbox.pages_sent if each["groupLabels"].get("node") == NODE]
    if not about:
        raise StackError(f"no page came about {NODE}; {len(inbox.pages_sent)} came about others")
    page = about[0]
    # Templates are written for Go's names of what a webhook has in JSON's.
    data = folder / f"{PAGE}.json"
    data.write_text(json.dumps(page))
    html = subprocess.run(
        [
            find_program("amtool"),
            *("template", "render", f"--template.glob={_TEMPLATES}", f"--template.data={data}"),
            '--template.text={{ template "peerwatch.html" . }}',
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    picture = _PICTURE.search(html)
    if picture is not None:
        address = urllib.parse.unquote(picture[0]).replace("&amp;", "&")
        (folder / f"{PAGE}-picture.png").write_bytes(_get(address))
        html = _PICTURE.sub(f"{PAGE}-picture.png", html)
    (folder / f"{PAGE}.html").write_text(html)


def _get_answered(address: str) -> bytes:
    """Return a room, read again where Prometheus was too busy to answer it."""
    html = _get(address)
    for _ in range(_TRIES):
        if b"did not answer" not in html:
            break
        time.sleep(_KEPT_SECONDS)
        html = _get(address)
    return html


def _get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310
        return bytes(answer.read())
