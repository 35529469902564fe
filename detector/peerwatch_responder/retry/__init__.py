"""Whether a failed job should be started again: advice from its logs, with lines quoted."""
