"""The header of basic authentication (RFC 7617), for every server that is read."""

from __future__ import annotations

import base64


def basic_authentication(user: str, password: str) -> dict[str, str]:
    """Return the header that says who asks.

    Parameters
    ----------
    user, password
        Sent in UTF-8.
    """
    secret = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {secret}"}
