from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from peerwatch_detector.detection.methods.peerwatch.order import median, quantile

NUMBERS = st.lists(
    st.floats(-1e12, 1e12) | st.sampled_from([0.0, 1.0, 1e-300]), min_size=1, max_size=40
)


@given(numbers=NUMBERS, share=st.sampled_from([0.0, 0.5, 0.75, 0.8, 0.98, 1.0]))
def test_quantiles_are_those_of_numpy_to_the_last_bit(numbers: list[float], share: float) -> None:
    values = np.array(numbers)
    assert float(np.quantile(values, share)) == quantile(values, share)
    assert float(np.median(values)) == median(values)
