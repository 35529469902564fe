#!/bin/sh
# Prolog of slurmd: tests how the node is set up before a job begins on it.
#   slurm.conf:    Prolog=/etc/slurm/prolog.d/*     # this one beside prolog.sh
# Fails, so that Slurm drains the node and requeues the job, only if a check of severity high has
# failed twice. What is broken about the checks themselves never drains a node.
# Slurm gives it no PATH; it calls none of Slurm's commands.
check=/opt/peerwatch/bin/peerwatch-check
settings=/etc/peerwatch/checks.yaml
set -- config --mode prolog --reason
[ -r "$settings" ] && set -- "$@" --config "$settings"
export NODE_NAME="${NODE_NAME:-$SLURMD_NODENAME}"
reason=$("$check" "$@")
[ $? -eq 2 ] && [ -n "$reason" ] || exit 0
echo "peerwatch: $reason"
exit 2
