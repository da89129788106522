#!/bin/sh
# dry_run.sh SOURCE PROGRAMS LIBRARIES PYTHON JOB: a job of on_device.sh from building to records, without a GPU: on the
# model driver, with small packs under the names that it looks for, and stand-ins for what only a GPU box has. So no time
# of a device is lost to a slip. Host times are taken on the fake driver, whose kernels do nothing.
set -u
source=$1 programs=$2 libraries=$3 python=$4 job=$5
driver=$libraries/libmodel_cuda.so
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  cat "$work/said" "$work"/out/*.log >&2
  exit 1
}

stand_in() { # NAME: the rest is the program
  cat >"$work/bin/$1" && chmod +x "$work/bin/$1"
}

export BUILD_SECONDS=900 # the tests share few cores
mkdir -p "$work/bin" "$work/packs" "$work/out" || exit 2
stand_in nvidia-smi <<'PROGRAM'
#!/bin/sh
case $* in *=name*) echo "Model Device" ;; *) echo 1.0 ;; esac
PROGRAM
stand_in compute-sanitizer <<'PROGRAM'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do case $1 in --tool | --error-exitcode | --print-limit) shift ;; esac; shift; done
"$@"
status=$?
echo "========= ERROR SUMMARY: 0 errors"
exit $status
PROGRAM
for pair in hybrid:hybrid tuned:hybrid64 walk:pyramid_lm; do
  "$programs/gpu_make_pack" "${pair%:*}" "$work/packs/${pair#*:}.pack" || exit 2
done

# run WORDS: the job with WORDS behind it, which exits with $expected
expected=0
run() {
  PATH=$work/bin:$PATH OUT=$work/out TREE=$work/tree PACKS=$work/packs PYTHON=$python PISA_LIBCUDA=$driver \
    DRY=1 PISA_COMMIT=dry WHEELS=$work/none sh "$source/tests/gpu/on_device.sh" "$@" >"$work/said" 2>&1
  code=$?
  [ $code = $expected ] || fail "exit $code: on_device.sh $*"
}

# merged OPTION FILE: record.py takes it
merged() {
  "$python" "$source/tests/gpu/record.py" merge "$1" "$2" --docs "$work/docs" >>"$work/said" 2>&1 || fail "record.py $1"
}

case $job in
verify)
  export VERIFY="--quick --seed 1 --heads 2"
  run verify hybrid
  grep -q '"passed"' "$work/out/validation.json" || fail "no fragment" # small cases earn no mark to merge
  ;;
sanitize)
  run sanitize hybrid
  grep -q "racecheck *hybrid .*SUMMARY" "$work/said" || fail "no summary"
  ;;
host)
  driver=$libraries/fake_cuda.so
  for pair in hybrid:hybrid select:pyramid_lm; do "$programs/make_pack" "${pair%:*}" "$work/packs/${pair#*:}.pack"; done
  export HOST="--no-device --limit 1000"
  run host hybrid pyramid_lm
  grep -q '"side": "c", "call": "decode"' "$work/out/host.jsonl" || fail "no decode step"
  merged --host "$work/out/host.jsonl"
  ;;
tune)
  export TUNE_TOKENS=65 TUNE="--heads 1 --rounds 5" CHECKS=2
  run tune hybrid64
  [ -s "$work/out/hybrid64.pack.tune" ] || fail "no table"
  merged --tune "$work/out/tune.jsonl"
  ;;
app)
  run app hybrid
  grep -q '^app  *[0-9]* s  ok' "$work/said" || fail "no summary"
  ;;
python)
  run python
  grep -q "skipped: tests/python/flux_gpu_test.py" "$work/said" || fail "not skipped"
  ;;
pages) # of which the other examples are tests of their own
  export PISAC="$work/none"
  run pages
  grep -q "^skipped: a compiler" "$work/said" || fail "not skipped"
  ;;
cover) # a compiler that has small packs for every spec, one of which the second spec is not given
  mkdir "$work/specs"
  : >"$work/specs/first.pisa"
  : >"$work/specs/second.pisa"
  stand_in pisac <<PROGRAM
#!/bin/sh
case \$1 in
explain) printf 'variants\n  0  type=bf16 rest=drop mass=x\n  1  type=bf16 rest=drop mass=y\n  2  type=fp16 rest=drop\n\nnot built\n' ;;
build)
  case "\$*" in *second.pisa*fp16*) echo "pisa_walk: spills" && exit 1 ;; esac
  while [ \$1 != -o ]; do shift; done
  cp "$work/packs/hybrid.pack" "\$2"
  ;;
--version) echo 1 ;;
esac
PROGRAM
  xz -c "$work/bin/pisac" >"$work/pisac.xz" || exit 2
  export PISAC="$work/pisac.xz" COVER_SPECS="$work/specs" VERIFY="--heads 1"
  run cover first
  grep -q '^cover: 1 specs, 2 packs, 0 of them not built or wrong; \([0-9]*\) of \1 cases passed$' "$work/said" ||
    fail "no summary"
  grep -q '"case": "smooth_odd"' "$work/out/cover.jsonl" || fail "no records"
  expected=2
  run cover
  grep -q '^FAILED (2): second type=fp16 rest=drop$' "$work/said" || fail "the pack that is not built is not told"
  grep -q '^    pisa_walk: spills$' "$work/said" || fail "no reason"
  exit 0
  ;;
*) fail "no job $job" ;;
esac
grep -q FAILED "$work/said" && fail "told as failed"
exit 0
