"""Packets and answers: who gets one, and that nobody gets more than was sent."""

from __future__ import annotations

import pytest

from hardware_cases import FakeClock
from peerwatch_exporter.sources.pings.datagrams import Datagram
from peerwatch_exporter.sources.pings.packets import MOST_BYTES, Kind, Packet, decode, encode
from peerwatch_exporter.sources.pings.responder import MOST_PER_SECOND, Responder
from ping_cases import SECRET

SESSION = b"session0"
PROBER = ("10.0.0.1", 5000)


def request(sequence=1, token=bytes(8), kind=Kind.REQUEST, session=SESSION):
    return Packet(kind, session, sequence, token)


def arrived(packet, source=PROBER, secret=SECRET, size=64, time=None):
    return Datagram(encode(packet, secret, size), source, time, "10.0.0.2")


class Prober:
    """Asks a responder, with the token it was given."""

    def __init__(self, responder, source=PROBER):
        self.responder = responder
        self.source = source
        self.token = bytes(8)

    def ask(self, sequence, size=64, session=SESSION, time=None):
        sent = arrived(request(sequence, self.token, session=session), self.source, size=size)
        sent = Datagram(sent.data, sent.source, time, sent.own_address)
        made = self.responder.reply(sent)
        if made is None:
            return None
        assert len(made) <= len(sent.data)
        answer, _ = decode(made, [SECRET])
        self.token = answer.token
        return answer


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def responder(clock):
    return Responder(lambda: (SECRET,), monotonic=clock, clock=clock)


@pytest.mark.parametrize("size", [64, 65, 1400, MOST_BYTES])
def test_a_packet_is_read_as_it_was_sent(size):
    sent = Packet(Kind.ANSWER, SESSION, 4_000_000_000, b"12345678", 7, 1_500_000)

    data = encode(sent, SECRET, size)

    assert size == len(data)
    assert (sent, SECRET) == decode(data, [b"another secret, old", SECRET])


def test_whatever_is_changed_on_its_path_is_no_packet():
    data = encode(request(), SECRET, 80)

    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x40
        assert decode(bytes(changed), [SECRET]) is None, place
    assert decode(data[:-1], [SECRET]) is None
    assert decode(data + b"\0", [SECRET]) is None
    assert decode(data, [b"another secret"]) is None
    assert decode(b"", [SECRET]) is None
    assert decode(bytes(MOST_BYTES + 1), [SECRET]) is None


def test_the_first_request_gets_a_token_alone_and_the_second_an_answer(responder):
    prober = Prober(responder)

    kinds = [prober.ask(1, 1400).kind, prober.ask(2, 1400).kind]

    assert [Kind.TOKEN, Kind.ANSWER] == kinds
    assert 1 == responder.answered
    assert ("10.0.0.2",) == responder.addresses


def test_a_token_is_of_no_use_elsewhere_or_later(responder, clock):
    prober, other = Prober(responder), Prober(responder, ("10.9.9.9", 5000))
    prober.ask(1)
    other.token = prober.token

    assert Kind.TOKEN == other.ask(2).kind
    clock.now += 61
    assert Kind.ANSWER == prober.ask(2).kind
    clock.now += 180
    assert Kind.TOKEN == prober.ask(3).kind


def test_an_answer_says_how_many_requests_arrived_and_how_long_it_took(responder, clock):
    prober = Prober(responder)
    prober.ask(1)

    received = [prober.ask(number, time=clock.now - 0.25) for number in (2, 5, 6)]

    assert [1, 2, 3] == [each.received for each in received]
    assert {250_000} == {each.microseconds for each in received}
    assert 1 == prober.ask(7, session=b"session1").received


def test_what_is_sent_again_is_not_answered_again(responder):
    prober = Prober(responder)
    prober.ask(1)
    for number in (2, 200, 199):
        assert Kind.ANSWER == prober.ask(number).kind

    assert [None, None, None] == [prober.ask(number) for number in (199, 200, 100)]
    assert 3 == responder.refused["repeated"]


def test_who_does_not_know_the_secret_gets_nothing(responder):
    answer = encode(request(kind=Kind.ANSWER), SECRET)
    strange = [
        arrived(request(), secret=b"another secret"),
        Datagram(b"GET / HTTP/1.0", PROBER, None, ""),
        Datagram(answer, PROBER, None, ""),
        Datagram(bytes(64), PROBER, None, ""),
    ]

    assert [None] * 4 == [responder.reply(each) for each in strange]
    assert 4 == responder.refused["signature"]


def test_a_flood_is_read_up_to_the_rate(responder, clock):
    class Flood:
        family = 2

        def __init__(self):
            self.read = 0

        def recvmsg(self, *_):
            self.read += 1
            return b"noise", [], 0, PROBER

    flood = Flood()

    responder.serve(flood)

    assert MOST_PER_SECOND == flood.read
    assert not responder.may_read()
    clock.now += 1
    assert responder.may_read()


def test_sessions_are_forgotten_before_they_fill_the_memory(responder):
    prober = Prober(responder)
    prober.ask(1)
    for number in range(1500):
        prober.ask(1, session=number.to_bytes(8, "big"))

    assert 1 == prober.ask(1, session=bytes(8)).received
