#!/bin/sh
# parse_fuzz.sh FUZZER DICTIONARY WORK_DIR SECONDS SEED...: runs parse_fuzz on the seeds.
set -eu
fuzzer=$1 dictionary=$2 work=$3 seconds=$4
shift 4
rm -rf "$work"
mkdir -p "$work/seeds" "$work/corpus"
n=0
for seed in "$@"; do
  cp "$seed" "$work/seeds/$n"
  n=$((n + 1))
done
cd "$work" # where libFuzzer leaves what crashed
if "$fuzzer" -help=1 2>&1 | grep -q libFuzzer; then
  "$fuzzer" -max_total_time="$seconds" -timeout=10 -max_len=8192 -dict="$dictionary" -print_final_stats=1 \
    corpus seeds >log 2>&1 || { tail -60 log; exit 1; }
  grep -E 'number_of_executed_units|peak_rss|^#.*DONE' log
else
  "$fuzzer" "$seconds" seeds/*
fi
