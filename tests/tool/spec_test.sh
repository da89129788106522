#!/bin/sh
# spec_test.sh: specs compiled by pisac and run on the CPU: float against the oracle, with all keys and with fewer, and
# every tail at density 1 against dense.
# usage: spec_test.sh PISA PISAC TEST_PROGRAMS_FOLDER SPECS_FOLDER, in an empty folder of its own.
set -eu
pisa=$1 pisac=$2 array=$3/array_tool specs=$4

$array make q.npy bfloat16 1 1 2 300 128
# flux1_dev attends densely below 1536 keys
$array make k.npy bfloat16 2 1 2 1600 128
$array make v.npy float32 3 1 2 1600 128
cpu="--q q.npy --k k.npy --v v.npy --device cpu"

# key blocks of 128, key variances, a forced diagonal
sed 's/key 64/key 128/; s/log covariance/log key_variance; always diagonal/; s/spec [a-z_]*/spec coarse/' \
  "$specs/hybrid_second.pisa" >coarse.pisa
cp "$specs"/*.pisa .

for spec in dense hybrid taylor0 taylor1 keep_or_drop hybrid_second hybrid_residual hybrid64 coarse sol_attn flux1_dev \
  wan21_14b; do
  $pisac build $spec.pisa --no-ptxas -o $spec.pack
  $pisa info $spec.pack | grep -q "^name        $spec\$"
  $pisa run $spec.pack $cpu -o $spec.npy --lse ${spec}_lse.npy
  $pisa run $spec.pack $cpu -o oracle.npy --lse oracle_lse.npy --oracle
  $array same $spec.npy oracle.npy 5e-4
  $array same ${spec}_lse.npy oracle_lse.npy 1e-6
  $pisa run $spec.pack $cpu -o short.npy --k-lengths 900
  $pisa run $spec.pack $cpu -o oracle.npy --k-lengths 900 --oracle
  $array same short.npy oracle.npy 5e-4
  case $spec in dense | sol_attn) continue ;; esac
  $pisa run $spec.pack $cpu -o all.npy --density 1
  $array same all.npy dense.npy 0
done

# a variant with query blocks of 64 rows, by another spelling of its density
settings="--set query=64 --set density=0.10"
$pisa run flux1_dev.pack $settings $cpu -o query64.npy
$pisa run flux1_dev.pack $settings $cpu -o oracle.npy --oracle
$array same query64.npy oracle.npy 5e-4

# these are different methods
for pair in "keep_or_drop taylor0" "taylor0 hybrid" "hybrid taylor1" "hybrid hybrid_second" "hybrid hybrid_residual" \
  "hybrid_second coarse" "taylor0 sol_attn" "flux1_dev query64"; do
  ! $array same ${pair% *}.npy ${pair#* }.npy 1e-3 2>/dev/null ||
    { echo "FAILED: $pair are equal" >&2; exit 1; }
done
