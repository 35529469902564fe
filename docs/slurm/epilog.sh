#!/bin/sh
# Epilog of slurmd: takes the job out again that prolog.sh put in.
#   slurm.conf:    Epilog=/etc/slurm/epilog.sh
# A GPU whose file is empty counts as free.
# Never fails: an epilog that fails takes the node out of service.
directory=${PEERWATCH_JOBS:-/run/peerwatch/jobs}
[ -n "${SLURM_JOB_ID:-}" ] && [ -d "$directory" ] || exit 0
# A shell ends at an exec that cannot open its file.
touch "$directory/.lock" || exit 0
exec 9>"$directory/.lock" && flock 9
for file in "$directory"/*; do
    [ -f "$file" ] || continue
    # Renamed into its place: the exporter never reads half a file. A leading dot hides the other.
    rest=$directory/.${file##*/}.$SLURM_JOB_ID
    grep -vx -e "$SLURM_JOB_ID" "$file" >"$rest"
    # 1: no other job is left; more: something failed, such as writing.
    if [ $? -le 1 ]; then mv "$rest" "$file"; else rm -f "$rest"; fi
done
exit 0
