#!/usr/bin/env bash
# All our grids on a machine with several GPUs and no packages of ours but wheels:
#
#   benchmarks/device_grids.sh frozen DATA_SET FIRST_CORE LAST_CORE GPU     frozen features
#   benchmarks/device_grids.sh tuned DATA_SET FIRST_CORE LAST_CORE GPUS     all weights
#
# Each data set has cores and GPUs of its own, so that all of them run at once. WORK holds projects
# and results and outlives a call; photographs are found in $WORK/data.
set -euo pipefail
WORK="${WORK:-/tmp/plmcl}"
what=$1 data_set=$2 cores=$3-$4
export CUDA_VISIBLE_DEVICES=$5 OMP_NUM_THREADS=1 PYTHONPATH="src:${SITE:-/tmp/site}" PYTHONUNBUFFERED=1
jobs=$(($4 - $3 + 1))

run() {
    taskset -c "$cores" python3 benchmarks/grids.py "$data_set" "grids/$1.yaml" \
        --data "$WORK/data" --work "$WORK/projects" --out "$WORK/results" --jobs "$jobs"
}

case $what in
frozen)
    run frozen
    case $data_set in photos5 | clothing26)
        run ten_seeds
        run parts
        ;;
    esac
    ;;
tuned)
    run fine_tune
    run end_to_end
    ;;
esac
