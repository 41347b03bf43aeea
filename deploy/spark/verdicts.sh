#!/bin/sh
# Keep a table of verdicts up to date with Spark: the executors read what is new, the driver judges and writes.
# Client mode: the checkpoint is on this machine. The exit status is that of rmqtx table (docs/growing_verdicts.md).
#   deploy/spark/verdicts.sh 's3://evidence/*/store' delta:s3://warehouse/rmqtx/verdicts
set -eu
stores=$1 table=$2
checkpoint=${CHECKPOINT:-/var/lib/rmqtx/verdicts.sqlite}
program=$(mktemp -t rmqtx-XXXXXX.py)
trap 'rm -f "$program"' EXIT
printf 'from rmqtx_cli.main import run\nrun()\n' > "$program"
status=0
spark-submit --master "${MASTER:-local[*]}" --deploy-mode client --name rmqtx-verdicts \
    "$program" table "$stores" --into "$table" --checkpoint "$checkpoint" || status=$?
exit "$status"
