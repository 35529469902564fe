"""Tests over several nodes: who takes part, what they tell one another, in rounds of pairs."""
