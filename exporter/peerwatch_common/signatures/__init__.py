"""Log signatures: the texts by which errors are known, and how a log is matched with them.

``load_signatures`` reads them, a ``MatchTable`` is built once for all logs of one kind, and every
log has a ``LogMatcher`` of its own, which turns bytes into events.
"""
