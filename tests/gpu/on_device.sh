#!/bin/sh
# Verifies, times and sanitizes the packs of generated/ on a machine with a GPU, one family of packs in
# under 9 minutes.
#
#   tests/gpu/on_device.sh verify|bench|sanitize|all [piecewise|selection] [SPEC ...]
#   tests/gpu/on_device.sh host|tune|app|python|ship [SPEC ...]
#   tests/gpu/on_device.sh pages [PAGE ...]
#   tests/gpu/on_device.sh cover [SPEC ...]
#
# host: our host time a call, in C and from torch; tune: packs tuned, one tune interrupted, the choices checked at 20
# shapes; app: the example application against an installed libpisa, contexts and devices of one process; python: the
# package on torch tensors, and a FLUX-shaped model where diffusers is there; ship: these four. pages: what README.md and
# the tutorials tell a new user to type, from spec to tuned pack; the compiler is $PISAC (default .dev/pisac.xz), one that
# was built with PISA_STATIC, by xz. cover: what the language has and generated/ has not: every variant of
# tests/gpu/specs/ is built with that compiler and verified (cover.sh), to cover.jsonl.
# piecewise and selection are the packs of that method alone, and its benchmarks.
# Needs a C compiler, cmake, python3 (with torch for bench) and compute-sanitizer for sanitize; no
# LLVM. Records go to $OUT (default ./out), once more together in all.tar: verify.jsonl, validation.json, bench.jsonl,
# kernels.jsonl, sanitize.log, build.log, host.jsonl, tune.jsonl and tables, app.log, python.log; tests/gpu/record.py merges them into docs/results.
# A SPEC is a pack of generated/, for sanitize also NAME:WORD=VALUE, a variant of it.
# PISA_COMMIT names the measured commit where there is no git; $BESIDE holds further options of
# tests/bench/beside.py, for instance "--variants sd35_medium --tokens 4429" in place of its scenes,
# $SELECT_BESIDE of tests/bench/select_beside.py. $VERIFY_SECONDS, $BENCH_SECONDS and so on replace the limits of the
# parts, $SANITIZE_TOOLS the tools, $VERIFY, $TUNE and $HOST hold further options of `pisa verify`, `pisa tune` and tests/bench/host_time.py. Wheels
# in $WHEELS (default .dev/wheels) are installed for the part python. $PACKS, $TREE and $PYTHON replace generated/,
# the build folder build-device and python3. $DRY is set where there is no GPU (dry_run.sh): app_gpu is built alone.
# Exit 0: all passed, 2: the world failed, 3: a check failed.
set -u
cd "$(dirname "$0")/../.." || exit 2

job=${1:-all}
[ $# -gt 0 ] && shift
family=
case ${1:-} in piecewise | selection) family=$1 && shift ;; esac
specs=$*
out=${OUT:-out}
tree=${TREE:-build-device}
case $tree in /*) ;; *) tree=$PWD/$tree ;; esac
pisa=$tree/bin/pisa
packs=${PACKS:-generated}
python=${PYTHON:-python3}
wheels=${WHEELS:-.dev/wheels}
pisac=${PISAC:-.dev/pisac.xz}
worst=0

now() {
  date +%s
}

commit() {
  echo "${PISA_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}"
}

driver() {
  nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1
}

# Whether packs of family $1 are wanted, and whether pack $1 is.
wants() {
  [ -z "$family" ] || [ "$family" = "$1" ]
}
wanted() {
  method=$(grep -a -m 1 '^method ' "$1")
  [ "$method" = "method pyramid" ] && wants selection || { [ "$method" != "method pyramid" ] && wants piecewise; }
}

# The packs of the specs named on the command line, else those of $1, else all of the family.
packs() {
  chosen=${specs:-$1}
  if [ -z "$chosen" ]; then
    for pack in "$packs"/*.pack; do wanted "$pack" && echo "$pack"; done
  else
    for spec in $chosen; do echo "$packs/${spec%%:*}.pack"; done
  fi
}

# Exit statuses as `pisa` has them; what timeout or a signal adds is the world's fault.
worse() {
  status=$1
  [ "$status" -gt 3 ] && status=2
  [ "$status" -gt "$result" ] && result=$status
}

# part NAME SECONDS FUNCTION: runs it until $deadline at the latest and notes how long it took.
part() {
  begin=$(now)
  deadline=$((begin + $2))
  result=0
  echo "---- $1"
  $3
  took=$(($(now) - begin))
  summary="$summary
$(printf '%-10s %4d s  ' "$1" $took)$([ $result = 0 ] && echo ok || echo "FAILED ($result)")"
  [ $result -gt $worst ] && worst=$result
}

left() { # seconds, one at least: timeout takes 0 for no limit
  seconds=$((deadline - $(now)))
  [ $seconds -gt 0 ] && echo $seconds || echo 1
}

build_runtime() {
  set -- -S . -B "$tree" -DPISA_COMPILER=OFF -DCMAKE_BUILD_TYPE=Release
  command -v ninja >/dev/null && set -- "$@" -G Ninja
  timeout "$(left)" cmake "$@" >"$out/build.log" 2>&1 &&
    timeout "$(left)" cmake --build "$tree" -j 16 --target pisa_tool libpisa libpisa_shared man_pisa \
      host_time host_launches contexts_test python_package \
      >>"$out/build.log" 2>&1 && return
  tail -n 30 "$out/build.log"
  result=2
}

# Options for one pack: the longest sequences are for a few of them, the oracle needs its time.
verify_options() {
  case $1 in
  */wan21_14b.pack | */hunyuan_video.pack | */hybrid64.pack | */dense.pack) echo --longest ;;
  esac
}

# Only rows that need a reader are shown: failures, the case that hung, the summary of each code.
verify_packs() {
  : >"$out/verify.jsonl"
  for pack in $(packs ""); do
    if [ "$(left)" -lt 5 ]; then
      echo "no time left for $pack"
      worse 2
      continue
    fi
    timeout "$(left)" $pisa verify "$pack" --both --json $(verify_options "$pack") ${VERIFY:-} \
      2>"$out/table" >>"$out/verify.jsonl"
    worse $?
    grep -v -e ' ok$' -e '^spec ' -e '^$' "$out/table"
  done
  rm -f "$out/table"
  "$python" tests/gpu/record.py fragment "$out/verify.jsonl" --driver "$(driver)" \
    -o "$out/validation.json" || worse 2
}

# time_kernels SPEC TOKENS: the kernels of one pack, each by itself.
time_kernels() {
  [ -e "$packs/$1.pack" ] || return 0
  { timeout 60 $pisa bench "$packs/$1.pack" --tokens "$2" --density 0.125 --json \
    >>"$out/kernels.jsonl"; } 2>&1
  worse $?
}

# time_selection SPEC OPTIONS: the kernels of a pack that selects blocks.
time_selection() {
  [ -e "$packs/$1.pack" ] || return 0
  spec=$1
  shift
  [ "$(left)" -gt 5 ] || {
    echo "no time left for $spec"
    worse 2
    return
  }
  { timeout "$(left)" $pisa bench "$packs/$spec.pack" --json "$@" >>"$out/kernels.jsonl"; } 2>&1
  worse $?
}

bench_selection() {
  PYTHONUNBUFFERED=1 timeout "$(left)" "$python" tests/bench/select_beside.py \
    --library "$tree/lib/libpisa.so" --packs "$packs" --commit "$(commit)" --out "$out/bench.jsonl" \
    ${SELECT_BESIDE:-}
  worse $?
  for spec in ${specs:-pyramid_lm}; do
    time_selection "$spec" --prefill --tokens 4096,16384,65536,262144
    time_selection "$spec" --decode --tokens 4096,16384,32768,65536,131072,262144
    time_selection "$spec" --decode --tokens 262144 --batch 64
  done
  [ -z "$specs" ] || return
  time_selection pyramid_mass --prefill --tokens 4096,16384,65536,262144
  time_selection pyramid_mass --decode --tokens 262144
  for spec in bsa nsa_selector llama3_8b; do
    time_selection $spec --prefill --tokens 4096,16384,65536
  done
  time_selection llama3_8b --decode --tokens 16384,131072
  time_selection pyramid_lm --prefill --layout bnhd --tokens 65536
}

bench_packs() {
  rm -f "$out/bench.jsonl" "$out/kernels.jsonl"
  : >"$out/kernels.jsonl"
  wants piecewise && bench_piecewise
  wants selection && bench_selection
}

bench_piecewise() {
  for spec in ${specs:-hybrid}; do time_kernels "$spec" 4096,4608,8192,16384,32768; done
  if [ -z "$specs" ]; then
    for spec in hybrid64 hybrid_residual; do time_kernels $spec 4608; done
    time_kernels sd35_medium 4429
  fi
  "$python" tests/bench/photograph.py "$tree/photograph" || worse 2
  PYTHONUNBUFFERED=1 timeout "$(left)" "$python" tests/bench/beside.py \
    --library "$tree/lib/libpisa.so" --packs "$packs" --photograph "$tree/photograph" \
    --commit "$(commit)" --out "$out/bench.jsonl" ${BESIDE:-}
  worse $?
}

# --set options that name the first variant of a pack, which may have many.
first_variant() {
  for choice in $(grep -a -m 1 '^variant 0' "$1" | cut -d ' ' -f 3-); do echo "--set $choice"; done
}

# sanitize_one TOOL SPEC: one tool over the small cases. For initcheck the workspace stays unfilled.
sanitize_one() {
  tool=$1 spec=$2
  set -- "$packs/${spec%%:*}.pack" --quick
  case " $sanitized_selection " in *" $spec "*) set -- "$@" $(first_variant "$1") ;; esac
  [ "$tool" = initcheck ] && set -- "$@" --no-poison
  [ "$spec" != "${spec#*:}" ] && set -- "$@" --set "${spec#*:}"
  echo "==== $tool $spec" >>"$out/sanitize.log"
  timeout "$(left)" compute-sanitizer --tool "$tool" --error-exitcode 3 --print-limit 20 \
    $pisa verify "$@" >"$out/part.log" 2>&1
  worse $?
  cat "$out/part.log" >>"$out/sanitize.log"
  printf '%-10s %-26s %s\n' "$tool" "$spec" "$(grep SUMMARY "$out/part.log" | sed 's/=* *//')"
}

# Every kernel, and every part of one that only some packs have.
sanitized="hybrid hybrid64 hybrid_second taylor1 hybrid_residual sol_attn keep_or_drop sd35_medium dense
flux1_dev:half_tile=on"
sanitized_selection="pyramid_lm pyramid_mass pisa_1 pisa_2 bsa nsa_selector llama3_8b smollm2_135m"

sanitize_packs() {
  : >"$out/sanitize.log"
  small=
  wants piecewise && small=$sanitized
  wants selection && small="$small $sanitized_selection"
  for tool in ${SANITIZE_TOOLS:-memcheck racecheck synccheck initcheck}; do
    for spec in ${specs:-$small}; do
      # pick reads a row of scores whole, also the places of leaves that nobody scored, and drops those
      [ $tool = initcheck ] && case " $sanitized_selection " in *" $spec "*) continue ;; esac
      if [ "$(left)" -ge 5 ]; then
        sanitize_one $tool "$spec"
      else
        echo "no time left for $tool on $spec"
        worse 2
      fi
    done
  done
  rm -f "$out/part.log"
}

. tests/gpu/ship.sh # the parts host, tune, app, python, pages, cover

case $job in
verify | bench | sanitize | all | host | tune | app | python | ship | pages | cover) ;;
*)
  echo "usage: tests/gpu/on_device.sh verify|bench|sanitize|all [piecewise|selection] [SPEC ...]" >&2
  echo "       tests/gpu/on_device.sh host|tune|app|python|ship [SPEC ...]" >&2
  echo "       tests/gpu/on_device.sh pages [PAGE ...]" >&2
  echo "       tests/gpu/on_device.sh cover [SPEC ...]" >&2
  exit 1
  ;;
esac
mkdir -p "$out" || exit 2
summary="commit $(commit), driver $(driver)"
part build "${BUILD_SECONDS:-90}" build_runtime
if [ $worst = 0 ]; then
  case $job in verify | all) part verify "${VERIFY_SECONDS:-400}" verify_packs ;; esac
  case $job in bench | all) part bench "${BENCH_SECONDS:-300}" bench_packs ;; esac
  case $job in sanitize | all) part sanitize "${SANITIZE_SECONDS:-200}" sanitize_packs ;; esac
  case $job in host | ship) part host "${HOST_SECONDS:-90}" time_host ;; esac
  case $job in tune | ship) part tune "${TUNE_SECONDS:-180}" tune_packs ;; esac
  case $job in app | ship) part app "${APP_SECONDS:-90}" try_app ;; esac
  case $job in python | ship) part python "${PYTHON_SECONDS:-150}" try_python ;; esac
  [ $job = pages ] && part pages "${PAGES_SECONDS:-300}" read_pages
  [ $job = cover ] && part cover "${COVER_SECONDS:-300}" cover_specs
fi
tar -cf "$out/all.tar" -C "$out" --exclude=./all.tar . # one file, where few come back
echo "$summary"
exit $worst
