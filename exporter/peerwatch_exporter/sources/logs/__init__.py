"""Logs of jobs and of the kernel: found, followed and searched for signatures in a child process.

A file of a job may lie on a network file system, and no call on one that hangs returns. So all
files are opened and read by a process of its own, which its parent ends and starts again.
"""
