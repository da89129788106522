#!/bin/sh
# spec_test.sh: specs compiled by pisac and run on the CPU: float against the oracle, every tail at density 1 against
# dense.
# usage: spec_test.sh PISA PISAC TEST_PROGRAMS_FOLDER SPECS_FOLDER, in an empty folder of its own.
set -eu
pisa=$1 pisac=$2 array=$3/array_tool specs=$4

$array make q.npy bfloat16 1 1 2 300 128
$array make k.npy bfloat16 2 1 2 700 128
$array make v.npy float32 3 1 2 700 128
cpu="--q q.npy --k k.npy --v v.npy --device cpu"

for spec in dense hybrid taylor0 keep_or_drop flux1_dev wan21_14b; do
  $pisac build "$specs/$spec.pisa" --no-ptxas -o $spec.pack
  $pisa info $spec.pack | grep -q "^name        $spec\$"
  $pisa run $spec.pack $cpu -o $spec.npy --lse ${spec}_lse.npy
  $pisa run $spec.pack $cpu -o oracle.npy --lse oracle_lse.npy --oracle
  $array same $spec.npy oracle.npy 5e-4
  $array same ${spec}_lse.npy oracle_lse.npy 1e-6
  [ $spec = dense ] || $pisa run $spec.pack $cpu -o all.npy --density 1
  [ $spec = dense ] || $array same all.npy dense.npy 0
done

# the tails are different methods
for pair in "keep_or_drop taylor0" "taylor0 hybrid"; do
  ! $array same ${pair% *}.npy ${pair#* }.npy 1e-3 2>/dev/null ||
    { echo "FAILED: $pair are equal" >&2; exit 1; }
done
