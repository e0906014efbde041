#!/usr/bin/env bash
# Grids on a machine with several GPUs and no packages of ours but wheels:
#
#   benchmarks/device_grids.sh "GRID..." DATA_SET FIRST_CORE LAST_CORE GPU [OPTION OF grids.py...]
#
# such as "frozen parts" clothing26 0 15 0: one after another, as many trainings at a time as there
# are cores. Each data set has cores and GPUs of its own, so that all of them run at once. WORK holds
# projects and results and outlives a call; photographs are found in $WORK/data.
set -euo pipefail
WORK="${WORK:-/tmp/plmcl}"
grids=$1 data_set=$2 cores=$3-$4 gpus=$5
jobs=$(($4 - $3 + 1))
shift 5
export CUDA_VISIBLE_DEVICES=$gpus OMP_NUM_THREADS=1 PYTHONPATH="src:${SITE:-/tmp/site}" PYTHONUNBUFFERED=1

for grid in $grids; do
    taskset -c "$cores" python3 benchmarks/grids.py "$data_set" "grids/$grid.yaml" \
        --data "$WORK/data" --work "$WORK/projects" --out "$WORK/results" --jobs "$jobs" "$@"
done
