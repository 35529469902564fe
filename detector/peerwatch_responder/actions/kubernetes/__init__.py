"""Kubernetes: nodes are marked and pods evicted through its API, as little of it as is needed."""
