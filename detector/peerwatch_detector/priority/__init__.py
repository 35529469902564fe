"""Learns the order of the metrics from labelled cases (Minder, section 4.3)."""
