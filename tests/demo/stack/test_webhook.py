"""The pager's stand-in takes what Alertmanager sends, and only that."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable

import pytest

from peerwatch_demo.stack.webhook import WebhookReceiver, parse_notification

Message = Callable[..., bytes]


def post(url: str, body: bytes) -> int:
    request = urllib.request.Request(url, data=body, method="POST")
    with urllib.request.urlopen(request, timeout=300) as answer:
        return int(answer.status)


def test_notifications_are_kept_with_their_time_and_path(message: Message) -> None:
    with WebhookReceiver(clock=lambda: 12.5) as receiver:
        status = post(f"{receiver.url}/page", message("firing", "node-3"))
        post(f"{receiver.url}/heartbeat", message("firing"))

        (page,) = receiver.notifications("/page")

    assert 200 == status
    assert (12.5, "firing", {"job_id": "j"}, ("node-3",)) == (
        page.arrived,
        page.status,
        page.group_labels,
        page.nodes(),
    )
    assert 2 == len(receiver.notifications())


def test_resolved_notifications_and_other_receivers_are_no_pages(message: Message) -> None:
    receiver = WebhookReceiver()
    with receiver:
        receiver.record("/page", message("resolved", "node-3", alert_status="resolved"))
        receiver.record("/ticket", message("firing", "node-1"))

        assert () == receiver.pages()
        receiver.record("/page", message("firing", "node-2"))

        assert ["/page"] == [page.path for page in receiver.pages()]
        assert ["/ticket"] == [ticket.path for ticket in receiver.tickets()]


def test_a_node_in_two_alerts_is_named_once(message: Message) -> None:
    page = parse_notification("/page", message("firing", "node-3", "node-3", "node-1"), 0)

    assert ("node-3", "node-1") == page.nodes()


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"not json", b'{"status": "firing"}'])
def test_anything_else_is_refused(body: bytes) -> None:
    with WebhookReceiver() as receiver:
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(f"{receiver.url}/page", body)
        refused.value.close()

        assert 400 == refused.value.code
        assert () == receiver.notifications()
