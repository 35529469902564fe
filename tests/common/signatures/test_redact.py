"""What is published of a line of a log is short, on one line, and tells no secret."""

from __future__ import annotations

import pytest

from peerwatch_common.signatures.redact import LONGEST, redacted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"cannot open s3://key:se/cr@t@host/x", "cannot open s3://<login>@host/x"),
        (b"https://user:pw@host/a failed", "https://<login>@host/a failed"),
        (b"api_key=abc123, next=1", "api_key=<secret>, next=1"),
        (b'{"password": "a b c", "x": 1}', '{"password": <secret>, "x": 1}'),
        (b"WANDB_API_KEY=0123456789abcdef rest", "WANDB_API_KEY=<secret> rest"),
        (b"run --token abcdef now", "run --token <secret> now"),
        (b"Authorization: Bearer abcdefgh1234", "Authorization: <secret> <secret>"),
        (b"sent Bearer abcdefgh1234", "sent Bearer <secret>"),
        (b"using hf_abcdefghijklmnop now", "using <token> now"),
        (b"jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.abc_def-1 x", "jwt <token> x"),
        (b"mail ann.lee@example.org", "mail <email>"),
        (b"No such file: '/home/annlee/run/x.bin'", "No such file: '/home/<user>/run/x.bin'"),
        (b"id 0123456789abcdef0123456789abcdef01234567 x", "id <hex> x"),
        (b"sig Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2Yz3A= x", "sig <base64> x"),
        (b"KeyError: 'model.layers.0.attention.weight'", None),
        (b"Watchdog caught WorkNCCL(SeqNum=80078, OpType=ALLREDUCE)", None),
        (b"The tokenizer has 32000 tokens, token 5 is unknown", None),
        (b"/usr/lib/python3.10/site-packages/torch/nn/modules/module.py", None),
    ],
)
def test_a_text_is_redacted(text: bytes, expected: str | None) -> None:
    assert redacted(text) == (text.decode() if expected is None else expected)


def test_a_text_is_one_short_line() -> None:
    text = redacted(b"a\x1b[31m\nb\xff" + b"c d" * 10_000)
    assert len(text) == LONGEST
    assert text.startswith("a\\x1b[31m\\nb\ufffd")
    assert text.endswith("...")
    assert len(redacted(b"x y" * 100, longest=20)) == 20
