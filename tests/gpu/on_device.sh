#!/bin/sh
# Verifies, times and sanitizes the packs of generated/ on a machine with a GPU.
#
#   tests/gpu/on_device.sh verify|bench|sanitize|all [SPEC ...]
#
# Needs a C compiler, cmake, python3 (with torch for bench) and compute-sanitizer for sanitize; no LLVM.
# Records go to $OUT (default ./out): verify.jsonl, validation.json, bench.jsonl, sanitize.log, build.log.
# PISA_COMMIT names the measured commit where there is no git. Exit 0: all passed, 2: the world failed, 3: a check failed.
set -u
cd "$(dirname "$0")/../.." || exit 2

job=${1:-all}
[ $# -gt 0 ] && shift
out=${OUT:-out}
build=build-device
pisa=$build/bin/pisa
worst=0
mkdir -p "$out" || exit 2

commit() {
  echo "${PISA_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}"
}

driver() {
  nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1
}

# part NAME SECONDS COMMAND...: runs one part, at most SECONDS, and says how long it took.
part() {
  name=$1 limit=$2
  shift 2
  begin=$(date +%s)
  "$@" "$limit"
  status=$?
  [ $status -gt $worst ] && worst=$status
  summary="$summary
$(printf '%-9s %4d s  %s' "$name" $(($(date +%s) - begin)) "$([ $status = 0 ] && echo ok || echo "FAILED ($status)")")"
}

packs() { # the packs named on the command line, else all of generated/
  if [ -n "$specs" ]; then
    for spec in $specs; do echo "generated/$spec.pack"; done
  else
    ls generated/*.pack
  fi
}

build_runtime() {
  generator=
  command -v ninja >/dev/null && generator="-G Ninja"
  # shellcheck disable=SC2086
  { timeout "$1" cmake -S . -B $build $generator -DPISA_COMPILER=OFF -DCMAKE_BUILD_TYPE=Release &&
      timeout "$1" cmake --build $build -j 16; } >"$out/build.log" 2>&1 && return 0
  tail -n 30 "$out/build.log"
  return 2
}

verify_packs() {
  deadline=$(($(date +%s) + $1)) result=0
  : >"$out/verify.jsonl"
  for pack in $(packs); do
    left=$((deadline - $(date +%s)))
    [ $left -lt 5 ] && { echo "verify: no time left for $pack"; return 2; }
    timeout "$left" $pisa verify "$pack" --both --json 2>"$out/table" >>"$out/verify.jsonl"
    status=$?
    grep -v ' ok$' "$out/table"
    [ $status -gt $result ] && result=$status
  done
  rm -f "$out/table"
  python3 tests/gpu/record.py fragment "$out/verify.jsonl" --driver "$(driver)" -o "$out/validation.json"
  [ $result -gt 3 ] && result=2
  return $result
}

# The benchmark's own check first compares every pack with torch; see tests/bench/beside.py.
bench_packs() {
  rm -f "$out/bench.jsonl"
  for pack in $(packs); do
    timeout 60 $pisa bench "$pack" --tokens 4096,4608,16384 || echo "bench: $pack failed ($?)"
  done
  PYTHONUNBUFFERED=1 timeout "$1" python3 tests/bench/beside.py --library $build/lib/libpisa.so --packs generated \
    --commit "$(commit)" --out "$out/bench.jsonl"
}

sanitize_packs() {
  deadline=$(($(date +%s) + $1)) result=0
  : >"$out/sanitize.log"
  for tool in memcheck racecheck synccheck initcheck; do
    poison=
    [ $tool = initcheck ] && poison=--no-poison # poison would initialise everything
    for pack in $(packs); do
      left=$((deadline - $(date +%s)))
      [ $left -lt 5 ] && { echo "sanitize: no time left for $tool on $pack"; return 2; }
      echo "==== $tool $pack" >>"$out/sanitize.log"
      timeout "$left" compute-sanitizer --tool $tool --error-exitcode 3 --print-limit 20 \
        $pisa verify "$pack" --quick $poison >"$out/part.log" 2>&1
      status=$?
      cat "$out/part.log" >>"$out/sanitize.log"
      printf '%-10s %-28s %s\n' $tool "$pack" "$(grep 'SUMMARY' "$out/part.log" | sed 's/=* *//')"
      [ $status -gt 3 ] && status=2
      [ $status -gt $result ] && result=$status
    done
  done
  rm -f "$out/part.log"
  return $result
}

specs=$*
summary="part         time  result ($(commit | cut -c 1-12), driver $(driver))"
case $job in
verify | bench | sanitize | all) ;;
*)
  echo "usage: tests/gpu/on_device.sh verify|bench|sanitize|all [SPEC ...]" >&2
  exit 1
  ;;
esac
part build 120 build_runtime
if [ $worst = 0 ]; then
  case $job in verify | all) part verify 240 verify_packs ;; esac
  case $job in bench | all) part bench 180 bench_packs ;; esac
  case $job in sanitize | all) part sanitize 90 sanitize_packs ;; esac
fi
echo "$summary"
exit $worst
