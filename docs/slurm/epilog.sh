#!/bin/sh
# Epilog of slurmd: takes the job out again that prolog.sh put in.
#   slurm.conf:    Epilog=/etc/slurm/epilog.sh
# A GPU whose file is empty counts as free.
directory=${PEERWATCH_JOBS:-/run/peerwatch/jobs}
[ -n "${SLURM_JOB_ID:-}" ] || exit 0
exec 9>"$directory/.lock" && flock 9
for file in "$directory"/*; do
    [ -f "$file" ] || continue
    # Renamed into its place: the exporter never reads half a file. A leading dot hides the other.
    rest=$directory/.${file##*/}.$SLURM_JOB_ID
    grep -vx -e "$SLURM_JOB_ID" "$file" >"$rest"
    mv "$rest" "$file"
done
exit 0
