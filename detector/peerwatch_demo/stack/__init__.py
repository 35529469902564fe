"""Prometheus, Alertmanager and a pager's receiver as child processes, and their watcher."""
