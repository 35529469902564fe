from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from peerwatch_reliability.errors import SourceError
from peerwatch_reliability.records import OutOfService, Window
from peerwatch_reliability.sources.slurm.command import lines_of
from peerwatch_reliability.sources.slurm.host_list import nodes_of
from peerwatch_reliability.sources.slurm.node_events import event_arguments, read_events
from peerwatch_reliability.sources.slurm.sacct import SEPARATOR, read_sacct, sacct_arguments

FIELDS = {
    "job_id": "7", "shown_id": "7", "user": "ann", "state": "COMPLETED", "submit": "1000",
    "eligible": "1000", "start": "1060", "end": "2060", "suspended": "00:00:00",
    "tres": "billing=8,cpu=8,gres/gpu=16,node=2", "nodes": "gpu[1-2]", "name": "train",
    "folder": "/home/ann", "comment": "", "submit_line": "sbatch a.sh", "order": "3",
}  # fmt: skip


def line(**changes):
    return SEPARATOR.join((FIELDS | changes).values())


def read(*lines, **how):
    return read_sacct("\n".join(lines).split("\n"), **how)


def test_a_row():
    ((row,), unreadable) = read(line())
    assert unreadable == 0
    assert (row.job_id, row.order, row.user, row.state) == ("7", 3, "ann", "completed")
    assert (row.submit, row.eligible, row.start, row.end) == (1000, 1000, 1060, 2060)
    assert (row.nodes, row.gpus, row.suspended_seconds) == (("gpu1", "gpu2"), 16, 0)


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({"state": "CANCELLED by 1000"}, "state", "cancelled"),
        ({"state": "NODE_FAIL"}, "state", "node_fail"),
        ({"state": "OUT_OF_MEMORY"}, "state", "out_of_memory"),
        ({"state": "A_NEW_ONE"}, "state", "other"),
        ({"state": "RUNNING", "end": "Unknown"}, "end", None),
        ({"state": "RESIZING"}, "end", 2060),
        ({"state": "RESIZING"}, "state", "requeued"),
        ({"state": "PENDING", "start": "Unknown", "end": "Unknown"}, "start", None),
        # Without an end, though it has one: it ended when it was submitted, and ran for nothing.
        ({"state": "CANCELLED by 0", "start": "None", "end": "None"}, "end", 1000),
        ({"suspended": "1-02:03:04"}, "suspended_seconds", 93_784),
        ({"suspended": "05:06.5"}, "suspended_seconds", 306.5),
        ({"suspended": "garbled"}, "suspended_seconds", 0),
        ({"suspended": "nan:inf:1"}, "suspended_seconds", 0),
        # No times, so it ended when it was submitted.
        pytest.param({"end": "9" * 4500}, "end", 1000, id="digits"),
        ({"end": "\u00b2"}, "end", 1000),
        ({"tres": "cpu=8,gres/gpu:h100=8,gres/gpu:a100=4"}, "gpus", 12),
        ({"tres": "cpu=8,gres/gpu=8,gres/gpu:h100=8"}, "gpus", 8),
        ({"tres": "cpu=8"}, "gpus", 0),
        ({"nodes": "None assigned"}, "nodes", ()),
        ({"submit_line": "sbatch -N 4 --exclude=n[1-2],n9 a.sh"}, "excluded", ("n1", "n2", "n9")),
        ({"submit_line": "srun -x n7 python --exclude-this"}, "excluded", ("n7",)),
        # The owner's own text, which would fill the memory.
        ({"submit_line": "sbatch a --exclude=n[1-99999][1-99999]"}, "excluded", ()),
        ({"submit_line": "sbatch a " + 11 * "-x n[1-99] "}, "excluded", ()),
        ({"name": "a|b\nc\n\nd"}, "name", "a|b\nc\n\nd"),
        ({"comment": "\n7\nckpt=20"}, "comment", "\n7\nckpt=20"),
    ],
)
def test_what_is_in_a_row(changes, name, value):
    ((row,), unreadable) = read(line(**changes))
    assert unreadable == 0
    assert getattr(row, name) == value


def test_gpus_where_slurm_accounts_none():
    ((row,), _) = read(line(tres="cpu=8,node=2"), gpus_per_node=8)
    assert row.gpus == 16


def test_a_name_that_would_pass_for_a_row_of_another_job_does_not():
    separator = f"{SEPARATOR}5a3f{SEPARATOR}"
    # What follows it in its own row would end the other one.
    other = SEPARATOR.join([*(FIELDS | {"job_id": "8", "user": "bob"}).values()][:12])
    named = SEPARATOR.join((FIELDS | {"name": f"x\n{other}"}).values())
    ((row,), unreadable) = read(named)
    assert (row.user, unreadable) == ("bob", 1)
    fields = FIELDS | {"name": f"x\n{other}"}
    ((row,), unreadable) = read(separator.join(fields.values()), separator=separator)
    assert (row.user, row.name, unreadable) == ("ann", fields["name"], 0)


@pytest.mark.parametrize(
    ("bad", "count"),
    [
        # A name with the separator itself.
        (line(name=f"a{SEPARATOR}b"), 1),
        (line(job_id="7.batch"), 1),
        (line(order="\u00b2"), 1),
        pytest.param(line(order="9" * 4500), 1, id="digits"),
        (line(submit="Unknown"), 1),
        # Cut off within.
        (line()[:40], 1),
    ],
)
def test_a_row_that_cannot_be_read_costs_no_other(bad, count):
    rows, unreadable = read(line(order="1"), bad, line(order="2"))
    assert [row.order for row in rows] == [1, 2]
    assert unreadable == count


def test_the_end_is_cut_off():
    rows, unreadable = read(line(), line()[:40])
    assert (len(rows), unreadable) == (1, 1)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", ("n1",)),
        ("n1,n3", ("n1", "n3")),
        ("gpu[08-10,12],login", ("gpu08", "gpu09", "gpu10", "gpu12", "login")),
        ("r[1-2]n[3-4]", ("r1n3", "r1n4", "r2n3", "r2n4")),
        ("", ()),
        ("(null)", ()),
        ("n[5-3]", ()),
    ],
)
def test_host_list(text, nodes):
    assert nodes_of(text) == nodes


@pytest.mark.parametrize(
    "text",
    [
        "n[1-99999999]",
        "n[1-99999999]x[1-99999999]",
        "n[" + 1000 * "1-99999999," + "1]",
        ",".join(1000 * ["n[1-99999]"]),
    ],
    ids=("range", "pairs", "ranges", "words"),
)
def test_a_garbled_range_is_bounded(text):
    assert len(nodes_of(text)) == 100_000


@pytest.mark.parametrize(
    "text",
    [
        "n" + 9000 * "[1-9]",
        "n[1-99999]" + "x" * 5000,
        "n[1-99999][" + "x" * 5000 + "]",
        "n[1-" + "9" * 5000 + "]",
        "n[" + "0" * 5000 + "-9]",
    ],
    ids=("ranges", "name", "part", "digits", "zeros"),
)
def test_what_names_no_node_names_none(text):
    assert nodes_of(f"a,{text},b[1-2]") == ("a", "b1", "b2")


def test_events():
    text = """\
gpu1|1000|1600|DRAIN*|bad | fan
second line
|900|950|Cluster Registered TRES|
gpu2|2000|Unknown|DOWN*|Not responding
"""
    assert read_events(text.splitlines()) == [
        OutOfService("gpu1", 1000, 1600, "bad | fan\nsecond line"),
        OutOfService("gpu2", 2000, None, "Not responding"),
    ]


def test_a_line_of_a_reason_that_looks_like_an_event_and_lacks_a_field_is_none():
    assert read_events(["gpu1|1000|1600|DRAIN|bad", "gpu2|1000|1600|DRAIN"]) == [
        OutOfService("gpu1", 1000, 1600, "bad\ngpu2|1000|1600|DRAIN"),
    ]


def test_what_is_asked():
    window = Window(1_700_000_000, 1_700_003_600)
    assert {"--duplicates", "--starttime=2023-11-14T22:13:20"} <= set(sacct_arguments(window))
    assert "Start=2023-11-14T22:13:20" in event_arguments(window)


def script(folder, text):
    path = folder / "sacct"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("echo 'no slurmdbd' >&2; echo row; exit 1", "sacct ends with status 1: no slurmdbd"),
        ("exec sleep 60", "sacct did not end within 1 s"),
    ],
)
def test_half_an_answer_is_none(tmp_path, text, error):
    with pytest.raises(SourceError, match=error):
        list(lines_of(script(tmp_path, text), None, 1.0, "sacct"))


def test_without_the_command(tmp_path):
    with pytest.raises(SourceError, match="No such file or directory"):
        list(lines_of(tmp_path, None, 1.0, "sacct"))


def test_what_it_is_run_with(tmp_path):
    folder = script(tmp_path, 'echo "$TZ $SLURM_TIME_FORMAT"; printf "a\\377b"')
    assert list(lines_of(folder, None, 60.0, "sacct")) == ["UTC %s", "a\ufffdb"]


def test_many_rows_fit():
    """In a process of its own: its peak is that of the rows and of Python."""
    code = textwrap.dedent("""
        from peerwatch_reliability.accounting.attempts import chains_of
        from peerwatch_reliability.sources.slurm.sacct import SEPARATOR, read_sacct
        def lines():
            for n in range(20_000):
                yield SEPARATOR.join((
                    str(n // 2), str(n // 2), f"u{n % 50}", ("REQUEUED", "COMPLETED")[n % 2],
                    str(1000 + n), str(1000 + n), str(1010 + n), str(1000 + n + 1), "00:00:00",
                    "billing=8,gres/gpu=64", f"gpu[{n % 900}-{n % 900 + 7}]", f"name {n % 3000}|",
                    "/home/x", "", "", str(n)))
        rows, unreadable = read_sacct(lines())
        chains = chains_of(rows, 1e6)
        assert len(rows) == 20_000 and unreadable == 0, (len(rows), unreadable)
        assert len(chains) <= 10_000
        status = open('/proc/self/status').read()
        print(status.split('VmHWM:')[1].split()[0])
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 120 * 1024
