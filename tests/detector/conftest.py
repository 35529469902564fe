"""Settings of the detector's property tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine must not fail a test for being slow; pytest-timeout ends what hangs.
settings.register_profile("detector", deadline=None)
settings.load_profile("detector")
