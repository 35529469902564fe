"""Aegis' Algorithm 1, step by step, each a pure function of what is known."""
