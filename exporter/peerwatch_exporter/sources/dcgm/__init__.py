"""Profiling fields of a DCGM host engine, read by a process of its own.

DCGM's library may hang, crash or print, so the exporter's main process never loads it.
"""
