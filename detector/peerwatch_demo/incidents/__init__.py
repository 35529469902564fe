"""Simulated incidents: what is observed of a job that fails, and what was wrong with it.

Nothing here knows the rules of the diagnosis that is measured with them: mechanisms are data
(``mechanisms/*.yaml``) with labels from the literature, lines of logs are written as their programs
write them and read back with the shipped signatures, and a seed draws everything else.
"""
