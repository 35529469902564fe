"""Reads chosen counters every 1 to 100 ms, in a process of its own, and keeps the last seconds.

A second's mean hides what happens within it: a NIC that sends at line rate for 20 ms and rests
for the other 980 appears 2 % busy. The process (``__main__``, ``loop``) reads counters
(``groups``) into rings of shared memory (``ring``) and reports once a second how large their rates
were over a window (``steps``, ``window``); the exporter's main process (``process``) supervises
it, publishes what it reports, and answers ``/burst`` (``burst``) from the rings.

Nothing is imported here: the process starts with what it needs and no more.
"""
