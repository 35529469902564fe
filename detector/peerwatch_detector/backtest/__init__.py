"""Recorded cases: replaying, evaluating, exporting them."""
