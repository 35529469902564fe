"""The processes of ranks: which of them ended or stand still, and what this means."""
