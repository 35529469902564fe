"""A simulated fleet: real exporter code over simulated nodes, and everything behind it for real.

``python -m peerwatch_demo.fleet``, or ``make demo FLEET=64``.
"""
