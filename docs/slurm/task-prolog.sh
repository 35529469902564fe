#!/bin/sh
# TaskProlog of slurmd: gives every PyTorch job heartbeats, without a change to the job.
#   slurm.conf:    TaskProlog=/etc/slurm/task-prolog.sh
#   exporter.yaml: heartbeat: {directory: /run/peerwatch/heartbeat}
# What it prints as "export NAME=value" becomes part of the task's environment.
hook=$(peerwatch-exporter hook-path 2>/dev/null) || exit 0
echo "export PEERWATCH_HEARTBEAT_DIR=${PEERWATCH_HEARTBEAT_DIR:-/run/peerwatch/heartbeat}"
echo "export PYTHONPATH=$hook${PYTHONPATH:+:$PYTHONPATH}"
exit 0
