"""The order in which signatures, history, diagnosis and model decide: a pure function."""
