#!/bin/sh
# Prolog of slurmd: tells the exporter which job holds which GPU of this node.
#   slurm.conf:    Prolog=/etc/slurm/prolog.sh
#   exporter.yaml: jobs: {mapping_directory: /run/peerwatch/jobs}
# One file per GPU, named by its index, with the ids of its jobs; `node` for jobs without GPUs.
# Never fails: a prolog that fails takes the node out of service.
directory=${PEERWATCH_JOBS:-/run/peerwatch/jobs}
[ -n "${SLURM_JOB_ID:-}" ] || exit 0
mkdir -p "$directory" || exit 0
chmod 755 "$directory"
umask 022
# A shell ends at an exec that cannot open its file.
touch "$directory/.lock" || exit 0
exec 9>"$directory/.lock" && flock 9
for gpu in $(printf '%s' "${SLURM_JOB_GPUS:-node}" | tr ',' ' '); do
    echo "$SLURM_JOB_ID" >>"$directory/$gpu"
done
exit 0
