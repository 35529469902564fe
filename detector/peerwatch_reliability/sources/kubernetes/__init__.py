"""Pods, jobs and nodes of Kubernetes, from kube-state-metrics' series in Prometheus."""
