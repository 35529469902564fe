"""The driver process: one child that alone calls NVML, and the manager that keeps it alive.

A call into the GPU driver may never return, and no thread can be taken back from it; a process
can. ``manager.Driver`` stands in the exporter's own process and imports no pynvml; ``serve`` is
the child (``python -m peerwatch_exporter.driver``) and imports neither pydantic nor a web server.
Between them: a socket with framed messages (``wire``) and a few bytes of shared memory that say
which GPU the child is calling (``progress_marker``), so that a GPU that hangs it can be set apart.
"""
