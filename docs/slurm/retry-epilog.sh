#!/bin/sh
# EpilogSlurmctld: says whether a failed job should be started again, and starts it where it should.
#   slurm.conf:    EpilogSlurmctld=/etc/slurm/retry-epilog.sh
# Runs on the controller once a job, as SlurmUser, who may requeue it; the jobs' output must be on a file
# system that the controller has. Only jobs submitted with --requeue are started again. All advice is
# in the log and in the history (docs/retry.md). Never fails.
advise=/opt/peerwatch/bin/peerwatch-responder
settings=/etc/peerwatch/responder.yaml
scontrol=/usr/bin/scontrol
log=/var/log/slurm/retry.log
# Where slurm.conf is not /etc/slurm/slurm.conf, for scontrol and advise alike:
# export SLURM_CONF=/opt/slurm/etc/slurm.conf
# A job that ended well needs no advice.
[ "${SLURM_JOB_EXIT_CODE2:-0:0}" = 0:0 ] && exit 0
job=$SLURM_JOB_ID
[ -n "${SLURM_ARRAY_JOB_ID:-}" ] && job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
set -- advise --slurm-job-id "$job" --json
[ -r "$settings" ] && set -- "$@" --config "$settings"
found=$("$advise" "$@" 2>>"$log")
status=$?
echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $job ${found:-no advice, status $status}" >>"$log"
exclude=
seconds=0
case $status in
    0) ;;
    10) exclude=$(echo "$found" | sed -n 's/.*"isolate": \["\([^]]*\)"\].*/\1/p' | sed 's/", "/,/g') ;;
    11) seconds=$(echo "$found" | sed -n 's/.*"wait_seconds": \([0-9]*\).*/\1/p') ;;
    # Not to be started again, or for its owner to say; or no advice.
    *) exit 0 ;;
esac
# Only names of nodes: an advice may also name a rank or an address.
case $exclude in *[!A-Za-z0-9,._-]*) exclude= ;; esac
# Until this script has ended a job cannot be requeued, and then Slurm at once ends what is left of its
# process group: $(...) waits until the other has a session of its own, and so writes to the log.
: "$(setsid sh -c '
    exec >>"$5" 2>&1
    sleep "$4"
    for try in 1 2 3 4 5 6; do
        sleep 5
        "$1" requeuehold "$2" && break
    done
    [ -n "$3" ] && "$1" update JobId="$2" ExcNodeList="$3"
    # It would wait two minutes otherwise.
    "$1" update JobId="$2" StartTime=now
    "$1" release "$2"
' retry "$scontrol" "$job" "$exclude" "${seconds:-300}" "$log" </dev/null 2>>"$log" &)"
exit 0
