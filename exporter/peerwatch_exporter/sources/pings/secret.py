"""The secret that all nodes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# 128 bits if they are random bytes; one in use, and new and old ones while nodes are changed over.
_LEAST_BYTES = 16
_MOST_BYTES = 4096
_MOST_SECRETS = 4


class SecretError(Exception):
    """There is no secret to sign pings with."""

    error_class = "no_secret"


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """Return the secrets of a file: the first signs, all are accepted.

    Raises
    ------
    SecretError
        If the file cannot be read, or does not have one to four lines of at least 16 characters.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise SecretError(f"pings.secret_file {str(path)!r} cannot be read: {error}") from error
    secrets = tuple(line.strip() for line in content.splitlines() if line.strip())
    if not secrets or len(secrets) > _MOST_SECRETS or len(content) > _MOST_BYTES:
        raise SecretError(
            f"pings.secret_file {str(path)!r} has {len(secrets)} lines in {len(content)} bytes; it "
            f"must have one secret, or up to {_MOST_SECRETS} in lines of their own."
        )
    if (shortest := min(map(len, secrets))) < _LEAST_BYTES:
        raise SecretError(
            f"pings.secret_file {str(path)!r} has a secret of {shortest} characters; write at "
            f"least {_LEAST_BYTES}, for example with: openssl rand -hex 32"
        )
    return secrets
