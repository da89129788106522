#!/bin/sh
# cli_test.sh: `pisa run` and `pisa info` as a user types them, on the CPU.
# usage: cli_test.sh PISA TEST_PROGRAMS_FOLDER, in an empty folder of its own.
set -eu
pisa=$1 make_pack=$2/make_pack array=$2/array_tool
PISA_LIBCUDA=/nonexistent/libcuda.so
export PISA_LIBCUDA

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# refuse CODE WORDS COMMAND...: the exit code, and words in the message; nothing on stdout
refuse() {
  code=$1 words=$2
  shift 2
  set +e
  "$@" >stdout 2>stderr
  got=$?
  set -e
  [ "$got" = "$code" ] || fail "exit $got, expected $code: $* ($(cat stderr))"
  grep -qF -e "$words" stderr || fail "'$words' is not in the message of: $* ($(cat stderr))"
  [ ! -s stdout ] || fail "stdout is not empty: $*"
}

# prints WORDS COMMAND...: exit 0 and words on stdout
prints() {
  words=$1
  shift
  "$@" >stdout || fail "exit $?: $*"
  grep -qF -e "$words" stdout || fail "'$words' is not printed by: $* ($(cat stdout))"
}

for method in hybrid drop dense; do
  $make_pack $method $method.pack
done
$array make q.npy float32 1 2 4 300 64
$array make k.npy float32 2 2 2 1000 64
$array make v.npy float32 3 2 2 1000 64
cpu="--q q.npy --k k.npy --v v.npy --device cpu"

# float and oracle agree to the rounding of the output
$pisa run hybrid.pack $cpu -o fast.npy --lse fast_lse.npy --blocks fast_ids.npy
$pisa run hybrid.pack $cpu -o oracle.npy --lse oracle_lse.npy --blocks oracle_ids.npy --oracle --threads 1
prints "float32 [2, 4, 300, 64]" $array show fast.npy
prints "float32 [2, 4, 300]" $array show fast_lse.npy
prints "int32 [2, 4, 3, 2]" $array show fast_ids.npy
$array same fast.npy oracle.npy 5e-4
$array same fast_lse.npy oracle_lse.npy 1e-6
$array same fast_ids.npy oracle_ids.npy 0

# element types: the values are bfloat16 numbers, so every file type carries them unchanged
for type in float16 bfloat16; do
  $array make q_$type.safetensors:q $type 1 2 4 300 64
  $array make k_$type.npy $type 2 2 2 1000 64
  $array make v_$type.npy $type 3 2 2 1000 64
  $pisa run hybrid.pack --q q_$type.safetensors:q --k k_$type.npy --v v_$type.npy --device cpu \
    -o o_$type.safetensors --lse l_$type.safetensors:l --blocks=b_$type.npy
  prints "$type [2, 4, 300, 64]" $array show o_$type.safetensors:o
  $array same l_$type.safetensors:l fast_lse.npy 1e-3
done
$array same o_bfloat16.safetensors:o fast.npy 0
$array same o_float16.safetensors:o fast.npy 1e-3

# layout: the same numbers with the middle dimensions exchanged
for name in q k v; do
  $array swap $name.npy ${name}_bnhd.npy
done
$pisa run hybrid.pack --q q_bnhd.npy --k k_bnhd.npy --v v_bnhd.npy --device cpu --layout bnhd -o o_bnhd.npy --lse l.npy
$array swap o_bnhd.npy o_back.npy
$array same o_back.npy fast.npy 0
$array same l.npy fast_lse.npy 0

# budgets, variants, scale
for option in "--density 0.5:8" "--keep 3:3" "--set density=0.25:4" "--density 1:16" "--keep 99:16"; do
  $pisa run hybrid.pack $cpu -o o.npy ${option%:*} --blocks ids.npy
  prints "int32 [2, 4, 3, ${option#*:}]" $array show ids.npy
done
$pisa run hybrid.pack $cpu -o all.npy --density 1
$pisa run drop.pack $cpu -o all_drop.npy --density 1
$pisa run dense.pack $cpu -o dense.npy
$array same all.npy dense.npy 0
$array same all_drop.npy dense.npy 0
$pisa run dense.pack $cpu -o scaled.npy --scale 0.125
$array same scaled.npy dense.npy 0
$pisa run dense.pack $cpu -o scaled.npy --scale 0.25
! $array same scaled.npy dense.npy 0.1 2>/dev/null || fail "--scale changes nothing"
$pisa run drop.pack $cpu -o drop.npy
! $array same drop.npy dense.npy 0.1 2>/dev/null || fail "drop equals dense"

# the last block is always read
$pisa run hybrid.pack $cpu -o o.npy --keep 1 --blocks ids.npy
[ "$($array print ids.npy | sort -u)" = 15 ] || fail "--keep 1 does not read the always-set"

# given lists: what came out goes in, for all batches or for each; any order, repeated, with ids that are no block
run="$pisa run hybrid.pack $cpu -o given.npy --lse given_lse.npy --blocks given_ids.npy"
$run --blocks-in fast_ids.npy
$array same given.npy fast.npy 0
$array same given_lse.npy fast_lse.npy 0
$array same given_ids.npy fast_ids.npy 0
$array ints each.npy 4x3x3 9 2 -1
$array ints all.safetensors:ids 2x4x3x4 2 16 9 2
$run --blocks-in each.npy
prints "int32 [2, 4, 3, 3]" $array show given_ids.npy
[ "$($array print given_ids.npy | sort -n | uniq -c | tr -s ' \n' ' ')" = " 24 -1 24 2 24 9 " ] || fail "blocks of each.npy"
mv given.npy each_o.npy
$run --blocks-in all.safetensors:ids --oracle
$array same given.npy each_o.npy 5e-4
! $array same given.npy fast.npy 1e-2 2>/dev/null || fail "--blocks-in changes nothing"

# lengths: 1000 keys each are all; others count, one by one or from a file
run="$pisa run hybrid.pack $cpu -o short.npy --lse short_lse.npy"
$run --k-lengths 1000,1000
$array same short.npy fast.npy 0
$run --k-lengths 0,130 --blocks short_ids.npy
prints "int32 [2, 4, 3, " $array show short_ids.npy
$array print short_lse.npy | head -1 | grep -q inf || fail "a sequence without keys has a finite lse"
mv short_lse.npy by_numbers.npy
$array ints lengths.npy 2 0 130
$run --k-lengths lengths.npy --blocks-in each.npy
! $array same short_lse.npy by_numbers.npy 1e-3 2>/dev/null || fail "lengths and lists do not go together"
$run --k-lengths=lengths.npy --oracle
$array print short_lse.npy >a
$array print by_numbers.npy >b
paste a b | awk '$1 != $2 && ($1 - $2) ^ 2 > 1e-8 { exit 1 }' || fail "lengths from a file differ"

refuse 1 "has type float32, expected int32" $run --blocks-in q.npy
refuse 1 "has type float32, expected int32" $run --k-lengths q.npy
refuse 1 "'all.safetensors:ids' has shape [2, 4, 3, 4], expected [2]" $run --k-lengths all.safetensors:ids
$array ints wrong.npy 4x2x3 0
refuse 1 "'wrong.npy' has shape [4, 2, 3], expected [2, 4, 3, K] or [4, 3, K]" $run --blocks-in wrong.npy
$array ints wrong.npy 1x4x3x3 0
refuse 1 "expected [2, 4, 3, K]" $run --blocks-in wrong.npy
refuse 1 "expected [2, 4, 3, K]" $run --blocks-in lengths.npy
$array ints wrong.npy 4x3x17 0
refuse 1 "--blocks-in: n_listed is 17" $run --blocks-in wrong.npy
refuse 1 "--keep: keep is set, but lists" $run --blocks-in each.npy --keep 2
refuse 1 "--blocks-in: lists must be NULL: the pack is dense" $pisa run dense.pack $cpu -o o.npy --blocks-in each.npy
refuse 1 "--k-lengths is '5', expected 2 numbers" $run --k-lengths 5
refuse 1 "--k-lengths is '5,6,7', expected 2 numbers" $run --k-lengths 5,6,7
refuse 1 "batch 1 has 1001 keys, but must have 0 to 1000" $run --k-lengths 5,1001
refuse 1 "batch 0 has -1 keys" $run --k-lengths -1,3
refuse 2 "cannot open 'absent.npy'" $run --k-lengths absent.npy
refuse 2 "cannot open 'absent.npy'" $run --blocks-in absent.npy

# refusals of the user's input
refuse 1 "usage:" $pisa
refuse 1 "no command 'walk'" $pisa walk
refuse 1 "no PACK is given" $pisa run
refuse 1 "--v FILE is needed" $pisa run hybrid.pack --q q.npy --k k.npy -o o.npy
refuse 1 "no option '--speed'" $pisa run hybrid.pack --speed 9
refuse 1 "--q needs a value" $pisa run hybrid.pack --q
refuse 1 "--q is given twice" $pisa run hybrid.pack --q a --q b
refuse 1 "takes no value" $pisa run hybrid.pack --oracle=yes
refuse 1 "one argument too many" $pisa run hybrid.pack again.pack
refuse 1 "--keep is '0'" $pisa run hybrid.pack $cpu -o o.npy --keep 0
refuse 1 "--keep is '2x'" $pisa run hybrid.pack $cpu -o o.npy --keep 2x
refuse 1 "--density is 'nan'" $pisa run hybrid.pack $cpu -o o.npy --density nan
refuse 1 "--density is '-1'" $pisa run hybrid.pack $cpu -o o.npy --density -1
refuse 1 "--density: density is 1.5" $pisa run hybrid.pack $cpu -o o.npy --density 1.5
refuse 1 "--density: density and keep" $pisa run hybrid.pack $cpu -o o.npy --density 0.5 --keep 2
refuse 1 "--scale is 1e-60" $pisa run hybrid.pack $cpu -o o.npy --scale 1e-60
refuse 1 "--layout is 'nbhd'" $pisa run hybrid.pack $cpu -o o.npy --layout nbhd
refuse 1 "--device is 'gpu'" $pisa run hybrid.pack --q q.npy --k k.npy --v v.npy -o o.npy --device gpu
refuse 1 "needs --device cpu" $pisa run hybrid.pack --q q.npy --k k.npy --v v.npy -o o.npy --oracle
refuse 1 "must end in .npy" $pisa run hybrid.pack $cpu -o o.txt
refuse 1 "no variant has these settings" $pisa run hybrid.pack $cpu -o o.npy --set leaf=3
refuse 1 "the pack has one variant, without choices" $pisa run dense.pack $cpu -o o.npy --set foo=1
refuse 1 "--keep: keep is set, but the pack is dense" $pisa run dense.pack $cpu -o o.npy --keep 2
refuse 1 "--blocks: blocks must be NULL: the pack is dense" $pisa run dense.pack $cpu -o o.npy --blocks ids.npy
refuse 1 "--phase: phase is set" $pisa run hybrid.pack $cpu -o o.npy --phase decode
refuse 1 "four dimensions" $pisa run hybrid.pack --q fast_lse.npy --k k.npy --v v.npy -o o.npy --device cpu
refuse 1 "int32" $pisa run hybrid.pack --q fast_ids.npy --k k.npy --v v.npy -o o.npy --device cpu
refuse 1 "must be the same" $pisa run hybrid.pack --q q.npy --k k.npy --v q.npy -o o.npy --device cpu
refuse 1 "heads" $pisa run hybrid.pack --q k.npy --k k.npy --v v.npy -o o.npy --device cpu
$array make one.npy float32 1 1 4 300 64
$array make wide.npy float32 1 2 4 300 128
$array make empty.npy float32 1 2 4 0 64
refuse 1 "batches differ" $pisa run hybrid.pack --q one.npy --k k.npy --v v.npy -o o.npy --device cpu
refuse 1 "head_dim is 64" $pisa run hybrid.pack --q wide.npy --k k.npy --v v.npy -o o.npy --device cpu
refuse 1 "empty" $pisa run hybrid.pack --q empty.npy --k k.npy --v v.npy -o o.npy --device cpu

# the world failing
refuse 2 "cannot open 'absent.npy'" $pisa run hybrid.pack --q absent.npy --k k.npy --v v.npy -o o.npy --device cpu
refuse 2 "absent.pack" $pisa run absent.pack $cpu -o o.npy
refuse 2 "cannot write" $pisa run drop.pack $cpu -o absent/o.npy
refuse 2 "--device cpu" $pisa run hybrid.pack --q q.npy --k k.npy --v v.npy -o o.npy
head -c 100 q.npy >short.npy
refuse 2 "short.npy" $pisa run hybrid.pack --q short.npy --k k.npy --v v.npy -o o.npy --device cpu
refuse 2 "short.npy" $pisa info short.npy
head -c 300 hybrid.pack >short.pack
refuse 2 "short.pack" $pisa info short.pack

# information
prints "pisa " $pisa --version
prints "usage: pisa COMMAND" $pisa --help
prints "usage: pisa run PACK" $pisa run --help
prints "usage: pisa info PACK" $pisa info -h
prints "name        sample" $pisa info hybrid.pack
prints "route       top_k, score mean + log covariance, density 0.125, always tokens last 1" $pisa info hybrid.pack
prints "variant 1: density=0.25" $pisa info hybrid.pack
prints "unvalidated" $pisa info hybrid.pack
prints "pisa_route: 512 threads, shared memory by length, 64 registers, 0 bytes spilled" $pisa info hybrid.pack
prints "cubin       none: the driver compiles the PTX on load" $pisa info hybrid.pack
prints "168 registers, 24 bytes spilled" $pisa info dense.pack
prints "cubin       23 bytes, sha256" $pisa info dense.pack
prints "attend      all exact" $pisa info dense.pack
prints "attend selected=exact rest=drop" $pisa info --manifest drop.pack
$make_pack select select.pack
prints "method      pyramid" $pisa info select.pack
prints "pyramid     leaf 16, group 2" $pisa info select.pack
prints "route       pyramid, score lse, reduce heads sum, keep 5, always tokens first 1, always previous, always current" \
  $pisa info select.pack
prints "phases      prefill, decode; leaf_stage clustered, query_tile 32" $pisa info select.pack
prints "pisa_leaf_score: 512 threads, 132000 bytes shared memory" $pisa info select.pack
