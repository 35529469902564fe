"""A log as the models see it: lines with words of failure and those around, without numbers."""
