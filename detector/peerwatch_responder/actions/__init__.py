"""What can be done: a folder for each system that is told to, a file for each action in it.

Beside them stands the system's cluster, if it has one.
"""
