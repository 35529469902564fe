"""The line at which the main thread of a rank is, from the stacks of all its threads."""

from __future__ import annotations

import pytest

from peerwatch_detector.diagnosis.report.main_thread import main_thread_place

# As torch's worker server gives it, shortened: its own thread has no Python, others are helpers.
TORCH = """Current thread 0x00007f1a31ffb6c0 (most recent call first):
  <no Python frame>

Thread 0x00007f1a38c136c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/opt/hook/peerwatch_heartbeat.py", line 97 in _run
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f1a5f5deb80 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1284 in get
  File "/home/ops/train.py", line 118 in load
  File "/home/ops/train.py", line 9 in <module>
"""
# A main thread that is not the last, as in a console script, and a name of a thread (Python 3.14).
SCRIPT = """Thread 0x00007f0000000001 [MainThread] (most recent call first):
  File "/srv/llm/model.py", line 40 in forward
  File "/usr/bin/llm-train", line 8 in <module>

Thread 0x00007f0000000002 [worker] (most recent call first):
  File "/srv/llm/queue.py", line 3 in run
"""
LIBRARY_ONLY = """Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib64/python3.12/site-packages/torch/distributed/run.py", line 7 in main
  File "<frozen runpy>", line 88 in _run_code
"""


@pytest.mark.parametrize(
    ("dump", "place"),
    [
        pytest.param(TORCH, "train.py:118 (load)", id="the innermost line of the program"),
        pytest.param(SCRIPT, "model.py:40 (forward)", id="the thread that begins in a module"),
        pytest.param(LIBRARY_ONLY, "run.py:7 (main)", id="no line of the program: the innermost"),
        pytest.param("", "", id="nothing"),
        pytest.param("<html>not found</html>\n" * 3, "", id="something else"),
    ],
)
def test_where_the_main_thread_is(dump: str, place: str) -> None:
    assert place == main_thread_place(dump)
