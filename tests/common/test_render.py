"""Endpoints as text, against prometheus_client's renderer and parsers as the slow, obvious ones."""

from __future__ import annotations

import math
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from all_metrics import ALL_METRICS
from peerwatch_common.metrics.exposition import Renderer, number, series_text
from peerwatch_common.metrics.label_length import MAX_LABEL_BYTES, shortened
from peerwatch_common.metrics.spec import MetricSpec, TimedFamily

LABELLED = MetricSpec("demo_things", "gauge", "1", ("zone", "area"), "Things.", "test")
COUNTER = MetricSpec("demo_bytes_total", "counter", "bytes", ("device",), "Bytes.", "test")
PLAIN = MetricSpec("demo_load", "gauge", "1", (), 'Says "load"\nand C:\\.', "test")

# Zero bytes and halves of pairs cannot be written; they have a test of their own.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NUMBERS = st.one_of(
    st.floats(),
    st.integers(-(2**63), 2**64 - 1),
    st.booleans(),
)


def filled(spec, *rows):
    result = spec.family()
    result.rows = list(rows)
    return result


def text(*families):
    return Renderer().render(families, openmetrics=False).decode()


def openmetrics(*families):
    return Renderer().render(families, openmetrics=True).decode()


def parsed(families):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for item in families
        for sample in item.samples
    }


def registry_of(*families):
    class Once:
        def describe(self):
            return []

        def collect(self):
            return families

    registry = CollectorRegistry()
    registry.register(Once())
    return registry


def test_text_exposition_is_exactly_this():
    assert (
        '# HELP demo_load Says "load"\\nand C:\\\\.\n'
        "# TYPE demo_load gauge\n"
        "demo_load 0.25\n"
        "# HELP demo_bytes_total Bytes.\n"
        "# TYPE demo_bytes_total counter\n"
        'demo_bytes_total{device="eth0"} 18446744073709551615\n'
        'demo_bytes_total{device="a\\"b\\\\c\\nd"} 7\n'
    ) == text(
        filled(PLAIN, ((), 0.25)),
        filled(COUNTER, (("eth0",), 2**64 - 1), (('a"b\\c\nd',), 7)),
    )


def test_openmetrics_exposition_is_exactly_this():
    assert (
        '# HELP demo_load Says \\"load\\"\\nand C:\\\\.\n'
        "# TYPE demo_load gauge\n"
        "demo_load 0.25\n"
        "# HELP demo_bytes Bytes.\n"
        "# TYPE demo_bytes counter\n"
        'demo_bytes_total{device="eth0"} 7\n'
        "# EOF\n"
    ) == openmetrics(filled(PLAIN, ((), 0.25)), filled(COUNTER, (("eth0",), 7)))


def test_labels_stand_by_name():
    assert 'demo_things{area="b",zone="a"}' == series_text(LABELLED, ("a", "b"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (-1, "-1"),
        (True, "1"),
        (False, "0"),
        (2**64 - 1, "18446744073709551615"),
        (0.1, "0.1"),
        (1e16, "1e+16"),
        (5e-324, "5e-324"),
        (-1.7976931348623157e308, "-1.7976931348623157e+308"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (10**30, "1e+30"),
        (10**400, "+Inf"),
        (-(10**400), "-Inf"),
    ],
)
def test_number_is_written_so(value, expected):
    assert expected == number(value)


def test_integer_too_long_for_python_to_write_is_infinite():
    assert ("+Inf", "-Inf") == (number(10**5000), number(-(10**5000)))


@given(NUMBERS)
def test_number_is_the_same_when_read_back(value):
    read = float(number(value))
    assert float(value) == read or (math.isnan(read) and math.isnan(value))


@pytest.mark.parametrize(
    ("render", "parse"), [(text, parse_text), (openmetrics, parse_openmetrics)]
)
@given(labels=st.lists(st.tuples(TEXT, TEXT), unique=True, max_size=8), value=NUMBERS)
def test_any_label_text_is_the_same_when_read_back(render, parse, labels, value):
    exposition = render(filled(LABELLED, *((pair, value) for pair in labels)))
    expected = {("demo_things", (("area", area), ("zone", zone))): value for zone, area in labels}
    actual = parsed(parse(exposition))
    assert expected.keys() == actual.keys()
    assert all(
        float(value) == float(read) or (math.isnan(read) and math.isnan(value))
        for read in actual.values()
    )


@given(help_text=TEXT, openmetrics_wanted=st.booleans())
def test_any_help_text_is_the_same_when_read_back(help_text, openmetrics_wanted):
    spec = MetricSpec("demo", "gauge", "1", (), help_text, "test")
    exposition = (openmetrics if openmetrics_wanted else text)(filled(spec, ((), 1)))
    parse = parse_openmetrics if openmetrics_wanted else parse_text
    (item,) = parse(exposition)
    # The classic parser strips blanks around the text.
    assert help_text.strip() == item.documentation.strip()


@given(
    rows=st.dictionaries(st.tuples(TEXT), st.floats(0, 1e300), max_size=6),
    load=st.floats(allow_nan=False),
)
def test_the_slow_renderer_of_prometheus_client_says_the_same(rows, load):
    families = [filled(PLAIN, ((), load)), filled(COUNTER, *rows.items())]
    registry = registry_of(*families)
    assert parsed(parse_text(generate_latest(registry).decode())) == parsed(
        parse_text(text(*families))
    )
    assert parsed(parse_openmetrics(generate_openmetrics(registry).decode())) == parsed(
        parse_openmetrics(openmetrics(*families))
    )
    # Apart from how numbers are written, the two expositions are the same text.
    lines = [line for line in text(*families).split("\n") if line.startswith("#")]
    slow = generate_latest(registry).decode().split("\n")
    assert lines == [line for line in slow if line.startswith("#")]


def test_what_cannot_be_written_becomes_a_replacement_character():
    exposition = Renderer().render([filled(COUNTER, (("a\0b\udc80c",), 1))], openmetrics=False)
    assert 'device="a\ufffdb\ufffdc"' in exposition.decode()


def test_timestamps_are_milliseconds_in_text_and_seconds_in_openmetrics():
    item = TimedFamily(
        COUNTER, [(("a",), 1, 1767300000.0), (("a",), 2, 1767300001.0005), (("b",), 3, 1767300000)]
    )
    assert [
        'demo_bytes_total{device="a"} 1 1767300000000',
        'demo_bytes_total{device="a"} 2 1767300001000',
        'demo_bytes_total{device="b"} 3 1767300000000',
    ] == text(item).splitlines()[2:]
    assert [
        'demo_bytes_total{device="a"} 1 1767300000.000',
        'demo_bytes_total{device="a"} 2 1767300001.000',
        'demo_bytes_total{device="b"} 3 1767300000.000',
        "# EOF",
    ] == openmetrics(item).splitlines()[2:]
    (family,) = parse_openmetrics(openmetrics(item))
    assert [1767300000.0, 1767300001.0, 1767300000.0] == [
        float(sample.timestamp) for sample in family.samples
    ]


def test_an_exposition_changes_with_its_values_and_not_with_what_was_rendered_before():
    renderer = Renderer()
    first = [filled(COUNTER, (("eth0",), 1))]
    second = [filled(COUNTER, (("eth1",), 2), (("eth0",), 3))]
    renderer.render(first, openmetrics=False)
    renderer.render(first, openmetrics=True)
    assert text(*second) == renderer.render(second, openmetrics=False).decode()
    assert text(*first) == renderer.render(first, openmetrics=False).decode()


def test_metrics_that_move_come_and_go_are_rendered_as_by_a_new_renderer():
    renderer = Renderer()
    counter, labelled = filled(COUNTER, (("eth0",), 1)), filled(LABELLED, (("a", "b"), 2))
    other, plain = filled(LABELLED, (("a", "b"), 3)), filled(PLAIN, ((), 4))
    expositions = [
        [counter, labelled],
        [counter, labelled],
        [counter, other],
        [labelled, counter],
        [plain, counter],
        [plain],
        [],
        [plain, counter, other],
        [counter, plain, other],
        [filled(COUNTER, (("eth0",), 1)), plain, labelled],
    ]
    for families in expositions:
        for openmetrics in (False, True):
            expected = Renderer().render(families, openmetrics=openmetrics)
            assert expected == renderer.render(families, openmetrics=openmetrics)


def test_text_of_series_that_come_and_go_does_not_fill_the_memory():
    renderer = Renderer(max_prefixes=100)
    for start in range(0, 2000, 50):
        item = filled(COUNTER, *(((f"eth{n}",), n) for n in range(start, start + 50)))
        assert text(item) == renderer.render([item], openmetrics=False).decode()
    assert sum(len(prefixes) for prefixes in renderer._prefixes.values()) <= 200


def test_no_name_stands_for_two_metrics_in_openmetrics():
    # There the counter x_total is called x.
    names = [name.removesuffix("_total") for name in ALL_METRICS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_promtool_takes_every_odd_value_and_label():
    odd = ["", " ", "\t", "\r", "\\", '"', "\n", "\u2028", "😀", "{}", "#", "\x7f", "\0", "\udc80"]
    exposition = text(
        filled(LABELLED, *((("z", label), number) for number, label in enumerate(odd[:-2]))),
        filled(PLAIN, ((), math.nan)),
        filled(COUNTER, ((odd[-2],), math.inf), ((odd[-1] + "x",), 10**400)),
    )
    check = subprocess.run(
        ["promtool", "check", "metrics"],
        input=exposition.encode(),
        capture_output=True,
        check=False,
    )
    assert b"" == check.stderr
    assert 0 == check.returncode


def test_long_label_is_shortened_and_told():
    told = []
    renderer = Renderer(on_shortened=lambda metric, label: told.append((metric, label)))
    long, other = 1_000_000 * "j", 1_000_000 * "j" + "k"
    family = filled(COUNTER, ((long,), 1), ((other,), 2), (("short",), 3))
    exposition = renderer.render([family], openmetrics=False).decode()
    assert len(exposition) < 4000
    samples = [line for line in exposition.splitlines() if not line.startswith("#")]
    # Two series stay two, and each is the same one in the next exposition.
    assert 3 == len({line.rpartition(" ")[0] for line in samples})
    assert exposition == Renderer().render([family], openmetrics=False).decode()
    assert 2 * [(COUNTER.name, COUNTER.labels[0])] == told
    renderer.render([family], openmetrics=False)
    assert 2 == len(told)


@given(st.text(max_size=3000), st.text(max_size=3000))
def test_shortened_label_fits_and_stays_its_own(first, second):
    for value in (first, second):
        short = shortened(value)
        assert len(short.encode(errors="surrogatepass")) <= MAX_LABEL_BYTES
        assert (short == value) == (len(value.encode(errors="surrogatepass")) <= MAX_LABEL_BYTES)
    assert (first == second) == (shortened(first) == shortened(second))


@pytest.mark.parametrize("value", [400 * "ä", 1024 * "x", 1025 * "x", 2000 * "\udc80"])
def test_label_at_the_limit(value):
    assert len(shortened(value).encode(errors="surrogatepass")) <= MAX_LABEL_BYTES
