#!/bin/sh
# Epilog of slurmd: tests the node after a job, within a minute.
#   slurm.conf:    Epilog=/etc/slurm/epilog.d/*     # this one beside epilog.sh
# Fails, so that Slurm drains the node, only if a check of severity high has failed twice. Checks that
# put load on the node are skipped while other jobs have a part of it.
# Slurm gives it no PATH; it calls none of Slurm's commands.
check=/opt/peerwatch/bin/peerwatch-check
settings=/etc/peerwatch/checks.yaml
set -- light --mode epilog --reason
[ -r "$settings" ] && set -- "$@" --config "$settings"
export NODE_NAME="${NODE_NAME:-$SLURMD_NODENAME}"
reason=$("$check" "$@")
[ $? -eq 2 ] && [ -n "$reason" ] || exit 0
echo "peerwatch: $reason"
exit 2
