"""RDMA ports and their network drivers."""
