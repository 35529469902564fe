"""The demo: a real training job, a real fault, one page with the right name.

``python -m peerwatch_demo`` starts everything as real processes on this machine (see
``narrative.py`` for the order of events) and takes everything down again. The package is run
from the source tree and is not part of the wheel. ``stack.py`` is also what the end-to-end test
starts Prometheus and Alertmanager with.
"""
