"""Aegis' Algorithm 1, step by step, each a pure function of what is known.

Where a constant names no source, its value was chosen on the development incidents of
docs/evaluation.md, and then measured on others.
"""
