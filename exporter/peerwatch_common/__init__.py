"""What every program of Peerwatch uses: settings, metrics, HTTP, logging, progress.

It runs on every training node, so a module here loads only what its program asked for.
"""
