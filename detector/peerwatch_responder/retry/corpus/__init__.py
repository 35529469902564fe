"""The corpus: logs of failed jobs with what is right to do, as JSON lines, and their reader."""
