"""The curves of pictures: band and median of the peers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from peerwatch_detector.web.incident.curves import quantiles


@pytest.mark.parametrize("peers", [1, 2, 3, 128])
def test_band_and_median_are_those_of_numpy(peers: int) -> None:
    random = np.random.default_rng(peers)
    values = random.normal(size=(peers, 60))
    values[random.random(values.shape) < 0.3] = np.nan
    values[:, 7] = np.nan
    with warnings.catch_warnings():
        # Numpy warns of steps at which nobody has a sample.
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = np.nanquantile(values, (0.1, 0.5, 0.9), axis=0)

    np.testing.assert_allclose(quantiles(values), expected, rtol=1e-12)


def test_without_peers_there_is_no_band() -> None:
    assert np.isnan(quantiles(np.empty((0, 5)))).all()
    assert (3, 5) == quantiles(np.empty((0, 5))).shape
