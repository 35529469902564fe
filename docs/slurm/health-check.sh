#!/bin/sh
# HealthCheckProgram of slurmd: tests how the node is set up, also while jobs run.
#   slurm.conf:    HealthCheckProgram=/etc/slurm/health-check.sh
#                  HealthCheckInterval=300
#                  HealthCheckNodeState=ANY,CYCLE     # CYCLE: not all nodes at once
# Slurm ignores how it ends, so it drains the node itself, with the failed check as the reason; and it
# names the check where a prolog or epilog had the node drained. Other reasons stay as they are.
check=/opt/peerwatch/bin/peerwatch-check
scontrol=/usr/bin/scontrol
settings=/etc/peerwatch/checks.yaml
node=${SLURMD_NODENAME:?"slurmd starts this"}
set -- config --mode health --reason
[ -r "$settings" ] && set -- "$@" --config "$settings"
export NODE_NAME="${NODE_NAME:-$node}"
reason=$("$check" "$@")
[ $? -eq 2 ] && [ -n "$reason" ] || exit 0
# Asked only about a node that has failed: thousands of nodes are healthy.
case $("$scontrol" show node "$node") in
*"Reason=Prolog error"* | *"Reason=Epilog error"*) ;;
*Reason=*) exit 0 ;;
esac
exec "$scontrol" update NodeName="$node" State=DRAIN Reason="peerwatch: $reason"
