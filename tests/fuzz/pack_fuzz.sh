#!/bin/sh
# pack_fuzz.sh FUZZER SEEDER DICTIONARY WORK_DIR SECONDS: runs pack_fuzz on fresh seeds.
set -eu
fuzzer=$1 seeder=$2 dictionary=$3 work=$4 seconds=$5
rm -rf "$work"
mkdir -p "$work/seeds" "$work/corpus"
"$seeder" "$work/seeds"
cd "$work" # where libFuzzer leaves what crashed
if "$fuzzer" -help=1 2>&1 | grep -q libFuzzer; then
  "$fuzzer" -max_total_time="$seconds" -timeout=10 -dict="$dictionary" -print_final_stats=1 corpus seeds \
    >log 2>&1 || { tail -60 log; exit 1; }
  grep -E 'number_of_executed_units|peak_rss|^#.*DONE' log
else
  "$fuzzer" "$seconds" seeds/*
fi
