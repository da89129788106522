#!/bin/sh
# One test of `pisa verify` or `pisa bench` on the model driver:
# model_test.sh PISA MAKE_PACK MODEL_LIBRARY JOB [ARGUMENT ...]
# The seed is fixed: a fault that moves few lists is found in these inputs, not in all.
set -u
pisa=$1 make_pack=$2 model=$3 job=$4
shift 4
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

fail() {
  echo "$*"
  exit 1
}

pack() {
  "$make_pack" "$1" "$work/$1.pack" || fail "no sample pack $1"
  echo "$work/$1.pack"
}

# The fewest query heads that a pack takes: those of one key/value head.
heads() {
  case $1 in grouped* | flat | causal | walk | walk_below | walk_fused | walk_open | walk_paged) echo 2 ;; walk_mass | causal_paged) echo 3 ;; small*) echo 4 ;;
  *) echo 1 ;; esac
}

# expect CODE COMMAND...: runs it into $work/out and $work/err.
expect() {
  wanted=$1
  shift
  "$@" >"$work/out" 2>"$work/err"
  code=$?
  [ $code = "$wanted" ] && return
  cat "$work/out" "$work/err"
  fail "exit $code, expected $wanted: $*"
}

case $job in
no_device) # no driver: exit 2 and a sentence, no output
  file=$(pack dense)
  for command in verify bench; do
    expect 2 env PISA_LIBCUDA="$work/none" "$pisa" $command "$file"
    grep -q "cannot open the CUDA driver" "$work/err" || fail "$command: no word about the driver"
    [ -s "$work/out" ] && fail "$command: prints results without a device"
    expect 2 "$pisa" $command "$work/no.pack"
    expect 1 "$pisa" $command
    expect 1 "$pisa" $command "$file" --tokens 12,x
    expect 1 "$pisa" $command "$file" --density 0.5 --keep 3
    expect 0 "$pisa" $command --help
  done
  expect 1 "$pisa" verify "$file" --case nothing
  ;;
bench)
  file=$(pack hybrid)
  expect 0 env PISA_LIBCUDA="$model" "$pisa" bench "$file" --tokens 65 --heads 1 --json
  grep -q '"statistics_ms": [0-9.]*, "route_ms": [0-9.]*, "attend_ms"' "$work/out" ||
    fail "no times in the JSON line"
  expect 1 env PISA_LIBCUDA="$model" "$pisa" bench "$file" --rounds 4
  file=$(pack grouped)
  expect 0 env PISA_LIBCUDA="$model" "$pisa" bench "$file" --tokens 65 --heads 2 --json
  grep -q '"H": 2, "Hk": 1, .*"D": 96, "type": "bf16"' "$work/out" || fail "no shape in the JSON line"
  file=$(pack residual) # a kernel more, and floors
  expect 0 env PISA_LIBCUDA="$model" "$pisa" bench "$file" --tokens 65 --heads 1 --json
  grep -q '"residual_ms": [0-9.]*, "route_ms".*"residual_over_floor"' "$work/out" || fail "no residual"
  file=$(pack walk) # both phases of block selection
  expect 0 env PISA_LIBCUDA="$model" "$pisa" bench "$file" --tokens 65 --heads 2 --json
  grep -q '"phase": "prefill".*"ms": [0-9.]*, "select_ms": [0-9.]*, "pyramid_ms".*"walk_ms".*"pick_ms".*"attend_ms".*"csr_fill_ms"' "$work/out" ||
    fail "no times of the kernels that select"
  grep -q '"phase": "decode".*"ms": [0-9.]*, "cold_ms": [-0-9.]*, "append_ms"' "$work/out" || fail "no decode step"
  expect 0 env PISA_LIBCUDA="$model" "$pisa" bench "$file" --tokens 65 --heads 2 --json --decode --batch 3
  grep -q prefill "$work/out" && fail "prefill though decode alone was asked for"
  file=$(pack causal) # both phases of dense attention
  expect 0 env PISA_LIBCUDA="$model" "$pisa" bench "$file" --tokens 65 --heads 2 --json
  [ "$(grep -c '"ms": [0-9.]*' "$work/out")" = 2 ] || fail "not two phases"
  grep -q '"phase": "decode", "shape": {"B": 1, "H": 2, "Hk": 1, "Nq": 1, "Nk": 65,' "$work/out" || fail "no decode step"
  expect 0 env PISA_LIBCUDA="$model" "$pisa" bench "$(pack causal_paged)" --tokens 64 --heads 3
  file=$(pack short) # a dense call is one kernel
  expect 0 env PISA_LIBCUDA="$model" "$pisa" bench "$file" --tokens 65 --heads 1 --json
  grep -q statistics "$work/out" && fail "a dense call has statistics"
  file=$(pack grouped)
  for command in bench verify; do
    expect 1 env PISA_LIBCUDA="$model" "$pisa" $command "$file" --heads 3
  done
  ;;
right) # right SPEC CASE ...: what is right to rounding passes, in the small and the named cases
  file=$(pack "$1") heads=$(heads "$1")
  case $1 in walk* | flat) few="--heads $heads" ;; *) few= ;; esac
  shift
  export PISA_LIBCUDA="$model"
  expect 0 "$pisa" verify "$file" --seed 1 --quick --both $few
  expect 0 "$pisa" verify "$file" --seed 1 --quick --no-poison --ptx $few
  for name in "$@"; do
    expect 0 "$pisa" verify "$file" --seed 1 --heads "$heads" --case "$name"
    grep -q ' ok$' "$work/out" || fail "$name: no case ran"
  done
  ;;
launched) # launched SPEC KERNELS: the small cases launch these, which sanitizers then see
  file=$(pack "$1")
  expect 0 env PISA_LIBCUDA="$model" "$pisa" verify "$file" --seed 1 --quick --heads "$(heads "$1")"
  grep -q "launched $2\$" "$work/out" || fail "not $2: $(tail -n 1 "$work/out")"
  ;;
tune) # verified variants are timed and get rows; one that a fault makes wrong is never chosen
  file=$(pack tuned)
  expect 0 env PISA_LIBCUDA="$model" "$pisa" tune "$file" --tokens 65 --heads 1 --rounds 5
  [ "$(grep -c 'result=best' "$file.tune")" = 1 ] || fail "rows: $(cat "$file.tune")"
  [ "$(grep -c 'result=' "$file.tune")" = 2 ] || fail "rows: $(cat "$file.tune")"
  expect 3 env PISA_LIBCUDA="$model" PISA_MODEL_FAULT=h_sum "$pisa" tune "$file" --tokens 65 --heads 1 --again
  [ "$(grep -c 'result=wrong' "$file.tune")" = 2 ] || fail "rows: $(cat "$file.tune")"
  ;;
sweep) # a pack's points on a device, with times
  file=$(pack hybrid)
  expect 0 env PISA_LIBCUDA="$model" "$pisa" sweep "$file" --synthetic std=0.5 --tokens 300 --densities 0.2,0.9 \
    --device cuda:0 --max-error 0.9 --json
  [ "$(grep -c '"error": 0.[0-9]*, .*"ms": [0-9.]*, ' "$work/out")" = 2 ] || fail "$(cat "$work/out")"
  grep -q "bound=max_error" "$file.tune" || fail "nothing is recorded"
  file=$(pack walk) array=$(dirname "$make_pack")/array_tool
  "$array" make "$work/q.npy" bfloat16 1 1 4 800 64 && "$array" make "$work/k.npy" bfloat16 2 1 2 800 64 || fail "no arrays"
  for v in "" "--v $work/k.npy"; do # selected alone, and attended
    expect 0 env PISA_LIBCUDA="$model" "$pisa" sweep "$file" --q "$work/q.npy" --k "$work/k.npy" $v --device cuda:0 \
      --min-recall 0.1 --json
    grep -q '"recall": 0.[0-9]*, .*"ms": [0-9.]*, ' "$work/out" || fail "$(cat "$work/out")"
  done
  ;;
fault) # fault NAME SPEC CASE WORD: what is wrong is found, in the case that is there for it
  file=$(pack "$2")
  fault=$1 name=$3 word=$4
  set -- --heads "${5:-$(heads "$2")}" --case "$name"
  [ "$name" = random ] && set -- "$@" --quick
  [ "$fault" = ptx ] && set -- "$@" --both
  expect 3 env PISA_LIBCUDA="$model" PISA_MODEL_FAULT="$fault" "$pisa" verify "$file" --seed 1 "$@"
  grep -q -e "^    .*$word" -e "^pisa.*$word" "$work/out" "$work/err" ||
    fail "no word of '$word': $(cat "$work/out")"
  ;;
fragment) # a mark needs the complete list: a quick run earns none
  record=$1
  command -v python3 >/dev/null || exit 0
  file=$(pack dense)
  expect 0 env PISA_LIBCUDA="$model" "$pisa" verify "$file" --seed 1 --quick --both --json
  cp "$work/out" "$work/quick"
  expect 0 python3 "$record" fragment "$work/quick" --driver 1.0 -o "$work/none.json"
  grep -q sha256 "$work/none.json" && fail "a quick run earned a mark"
  sed 's/"complete": false/"complete": true/' "$work/quick" >"$work/whole"
  expect 0 python3 "$record" fragment "$work/whole" --driver 1.0 -o "$work/two.json"
  [ "$(grep -c sha256 "$work/two.json")" = 2 ] || fail "a complete run earns two marks"
  sed '/"code": "ptx"/s/"passed": true/"passed": false/' "$work/whole" >"$work/half"
  expect 0 python3 "$record" fragment "$work/half" --driver 1.0 -o "$work/half.json"
  grep -q sha256 "$work/half.json" && fail "a failed PTX left a mark"
  mkdir "$work/docs"
  expect 0 python3 "$record" merge --validation "$work/two.json" --docs "$work/docs"
  expect 0 python3 "$record" merge --validation "$work/two.json" --docs "$work/docs"
  cmp -s "$work/two.json" "$work/docs/validation.json" || fail "merging twice changed the record"
  echo '{"bench": "kernels", "spec": "dense", "sha256": "0", "shape": {}, "ms": 1.0}' >"$work/times"
  expect 0 python3 "$record" merge --kernels "$work/times" --docs "$work/docs"
  expect 0 python3 "$record" merge --kernels "$work/times" --docs "$work/docs"
  cmp -s "$work/times" "$work/docs/h200/kernels.jsonl" || fail "a line of times is added once"
  expect 1 python3 "$record" merge --kernels "$work/two.json" --docs "$work/docs"
  cat >"$work/step" <<'LINE'
{"run": "r", "commit": "c", "device": "d", "driver": "1", "bench": "decode", "variant": "v", "shape": {"B": 1, "H": 1, "Hk": 1, "Nq": 1, "Nk": 9, "D": 64, "type": "bf16", "leaf": 64, "keep": 8}, "ms": 1.0, "ms_sustained": 1.0, "peer": "cudnn", "peer_ms": 2.0, "peer_ms_sustained": 2.0, "ratio": 2.0, "ptx_sha256": []}
LINE
  expect 0 python3 "$record" merge --bench "$work/step" --docs "$work/docs"
  cmp -s "$work/step" "$work/docs/h200/pyramid.jsonl" || fail "a decode step has a place of its own"
  sed 's/"leaf": 64/"density": 1/' "$work/step" >"$work/odd"
  expect 1 python3 "$record" merge --bench "$work/odd" --docs "$work/docs"
  ;;
*) fail "no job $job" ;;
esac
