"""Collectives between processes, over NCCL where there are GPUs and gloo elsewhere."""
