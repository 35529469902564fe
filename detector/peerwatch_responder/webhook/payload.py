"""Reads the body of Alertmanager's webhook, version 4.

A body that is not wholly understood is not acted upon: it is refused with a reason, never read as
far as it goes.
"""

from __future__ import annotations

import json
import re
from datetime import datetime

from peerwatch_common.errors import PeerwatchError
from peerwatch_common.logs import one_line
from peerwatch_responder.alert import Alert

VERSION = "4"
# Chosen: hundreds of alerts with their descriptions, where a group is about one node.
MAX_BYTES = 1024**2
# The smallest alert takes some 250 bytes of the megabyte.
MAX_ALERTS = 4096
# Chosen, as what is heard goes into the journal: labels of the shipped rules several times over,
# four of Kubernetes' longest names (253 bytes), and a description that lists 60 of these.
MAX_LABELS = 64
MAX_LABEL_BYTES = 1024
MAX_ANNOTATION_BYTES = 16384

# Alertmanager's fingerprints are 16 hexadecimal digits; other senders of the format may differ.
_FINGERPRINT = re.compile(r"[0-9A-Za-z_.:-]{1,128}")
_FRACTION = re.compile(r"\.(\d{1,9})(?=Z|[+-]\d\d:\d\d$)")
_YEAR_ONE = "0001-01-01"


class PayloadError(PeerwatchError):
    """The body is not one that can be acted upon; the message says why."""


def parse(body: bytes) -> tuple[Alert, ...]:
    """Return the alerts of a notification, in its order.

    Parameters
    ----------
    body
        The body of the request, as it came.

    Raises
    ------
    PayloadError
        If it is of another version, cut by its sender, too large, or not what the format says.
    """
    if len(body) > MAX_BYTES:
        raise PayloadError(f"The body has {len(body)} bytes; {MAX_BYTES} are read.")
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        raise PayloadError("The body is no JSON.") from None
    if not isinstance(payload, dict):
        raise PayloadError("The body is no JSON object.")
    version = payload.get("version")
    if version != VERSION:
        raise PayloadError(f"The payload has version {_shown(version)}; version 4 is understood.")
    truncated = payload.get("truncatedAlerts", 0)
    if truncated != 0:
        raise PayloadError(
            f"The payload lacks {_shown(truncated)} alerts (truncatedAlerts); "
            "set max_alerts of the receiver to 0."
        )
    alerts = payload.get("alerts")
    if not isinstance(alerts, list):
        raise PayloadError("The payload has no list of alerts.")
    if len(alerts) > MAX_ALERTS:
        raise PayloadError(f"The payload has {len(alerts)} alerts; {MAX_ALERTS} are read.")
    return tuple(_alert(place, each) for place, each in enumerate(alerts))


def _alert(place: int, data: object) -> Alert:
    where = f"alerts[{place}]"
    if not isinstance(data, dict):
        raise PayloadError(f"{where} is no JSON object.")
    status = data.get("status")
    if status not in ("firing", "resolved"):
        raise PayloadError(f"{where}.status is {_shown(status)}, not firing or resolved.")
    fingerprint = data.get("fingerprint")
    if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
        raise PayloadError(f"{where}.fingerprint is {_shown(fingerprint)}, not a hash.")
    starts_at = _time(f"{where}.startsAt", data.get("startsAt"))
    ends_at = _time(f"{where}.endsAt", data.get("endsAt")) if status == "resolved" else None
    return Alert(
        labels=_texts(f"{where}.labels", data.get("labels"), MAX_LABEL_BYTES),
        fingerprint=fingerprint,
        starts_at=starts_at,
        ends_at=ends_at,
        annotations=_texts(
            f"{where}.annotations", data.get("annotations", {}), MAX_ANNOTATION_BYTES
        ),
    )


def _texts(where: str, data: object, limit: int) -> dict[str, str]:
    if not isinstance(data, dict) or not all(isinstance(value, str) for value in data.values()):
        raise PayloadError(f"{where} is no JSON object of texts.")
    if len(data) > MAX_LABELS:
        raise PayloadError(f"{where} has {len(data)} entries; {MAX_LABELS} are read.")
    for name, value in data.items():
        try:
            length = len(value.encode())
            name.encode()
        except UnicodeEncodeError:
            raise PayloadError(f"{where}.{_shown(name)} has half a character.") from None
        if length > limit:
            raise PayloadError(f"{where}.{_shown(name)} is longer than {limit} bytes.")
    return dict(data)


def _time(where: str, value: object) -> float:
    if not isinstance(value, str) or value.startswith(_YEAR_ONE):
        raise PayloadError(f"{where} is {_shown(value)}, not a time.")
    # Go writes nanoseconds, of which Python reads six digits.
    text = _FRACTION.sub(lambda found: "." + found[1][:6].ljust(6, "0"), value)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise PayloadError(f"{where} is {_shown(value)}, not a time.") from None
    if moment.tzinfo is None:
        raise PayloadError(f"{where} is {_shown(value)}, a time without a zone.")
    return moment.timestamp()


def _shown(value: object) -> str:
    return one_line(repr(value))[:100]
