"""What ranks do in collectives, as torch, NCCL or the communication library itself says."""
