"""The demo: a real training job, a real fault, one page with the right name.

``python -m peerwatch_demo`` starts everything as real processes on this machine (see
``run.py`` for the order of events) and takes everything down again; ``stack.py`` is also
what the end-to-end tests start Prometheus and Alertmanager with. ``python -m
peerwatch_demo.exporter`` serves a simulated node, ``python -m peerwatch_demo.simulator`` writes
simulated cases. Programs never import this package.
"""
