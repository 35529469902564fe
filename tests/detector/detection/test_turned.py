from __future__ import annotations

import numpy as np
import pytest

from peerwatch_detector.detection.methods.peerwatch.turned import turned


@pytest.mark.parametrize("rows", [0, 1, 511, 512, 513, 1100])
def test_it_is_the_transpose_in_memory_of_its_own(rows: int) -> None:
    history = np.arange(rows * 9, dtype=np.float32).reshape(rows, 9)

    found = turned(history[:, 2:7])

    assert found.flags.c_contiguous
    assert not np.shares_memory(found, history)
    np.testing.assert_array_equal(history.T[2:7], found)
