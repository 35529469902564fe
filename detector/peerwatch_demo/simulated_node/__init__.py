"""A simulated training node under the real exporter, for rules, dashboards and people without GPUs.

The node is a server with eight H100 and eight RDMA NICs that trains as part of a larger job. From
the onset on a scenario changes something; everything is a function of the seed and of the time, so
that the driver process may be killed and started again and its counters go on.
"""
