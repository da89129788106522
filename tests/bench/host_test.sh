#!/bin/sh
# host_test.sh c|torch SOURCE PROGRAMS LIBRARIES PYTHON: the host-time programs on the fake driver, in a folder of its
# own: their lines are what record.py takes, and a limit that is passed is told. Times that count are a GPU's.
set -eu
side=$1 source=$2 programs=$3 libraries=$4 python=$5
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
PISA_LIBCUDA=$libraries/fake_cuda.so
export PISA_LIBCUDA

fail() {
  echo "FAILED: $*" >&2
  cat "$work/out" "$work/err" >&2
  exit 1
}

# measure CODE OPTIONS: the program of this side on packs of both methods
measure() {
  wanted=$1
  shift
  code=0
  if [ "$side" = c ]; then
    "$programs/host_time" "$@" "$work/hybrid.pack" "$work/select.pack"
  else
    "$python" "$source/tests/bench/host_time.py" --launches "$libraries/libhost_launches.so" --no-device "$@" \
      "$work/hybrid.pack" "$work/select.pack"
  fi >"$work/out" 2>"$work/err" || code=$?
  [ $code != 77 ] || { cat "$work/out" && exit 77; }
  [ $code = "$wanted" ] || fail "exit $code, expected $wanted: $side $*"
}

for method in hybrid select; do "$programs/make_pack" $method "$work/$method.pack"; done
measure 0 --facts '{"run": "r", "commit": "c", "device": "d", "driver": "1"}' --limit 1000
calls=4
[ "$side" = c ] || calls=8
[ "$(grep -c '"ours_us"' "$work/out")" = $calls ] || fail "not $calls calls"
grep '"call": "[a-z.]*attention", .*"Hk": 2, .*"launches": 3' "$work/out" >/dev/null || fail "three launches"
command -v python3 >/dev/null || exit 0
python3 "$source/tests/gpu/record.py" merge --host "$work/out" --docs "$work/docs" >"$work/err" || fail "not merged"
[ "$(wc -l <"$work/docs/h200/host.jsonl")" = $calls ] || fail "not all recorded"
sed 's/"launches"/"starts"/' "$work/out" >"$work/odd"
! python3 "$source/tests/gpu/record.py" merge --host "$work/odd" --docs "$work/docs" 2>"$work/err" || fail "odd lines merged"
measure 0
head -c 17 "$work/out" | grep -q '^{"bench": "host"' || fail "no JSON without facts"
measure 3 --limit 0.001
grep -q 'host_time.*0.00' "$work/err" || fail "no word about the limit"
