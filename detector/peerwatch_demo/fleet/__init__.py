"""A simulated fleet: real exporter code over scripted nodes, and everything behind it for real.

``python -m peerwatch_demo.fleet``, or ``make demo FLEET=64``.
"""
