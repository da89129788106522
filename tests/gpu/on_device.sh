#!/bin/sh
# Verifies, times and sanitizes the packs of generated/ on a machine with a GPU, one family of packs in
# under 9 minutes.
#
#   tests/gpu/on_device.sh verify|bench|sanitize|all [piecewise|selection] [SPEC ...]
#   tests/gpu/on_device.sh host|tune|app|python|ship [SPEC ...]
#   tests/gpu/on_device.sh pages [PAGE ...]
#
# host: our host time a call, in C and from torch; tune: packs tuned, one tune interrupted, the choices checked at 20
# shapes; app: the example application against an installed libpisa, contexts and devices of one process; python: the
# package on torch tensors, and a FLUX-shaped model where diffusers is there; ship: these four. pages: what README.md and
# the tutorials tell a new user to type, from spec to tuned pack; the compiler is $PISAC (default .dev/pisac.xz), one that
# was built with PISA_STATIC, by xz.
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
      host_time host_launches contexts_test \
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

# tried NAME COMMAND...: one thing of a part; 77 says that it has nothing to run on here.
tried() {
  name=$1
  shift
  status=0
  if [ "$(left)" -lt 2 ]; then
    echo "no time left for $name"
    worse 2
    return
  fi
  timeout "$(left)" "$@" || status=$?
  [ $status = 77 ] && echo "skipped: $name" && return
  [ $status = 0 ] || echo "FAILED ($status): $name"
  worse $status
}

# The same for a function of this script, which ends in time what it calls.
within() {
  name=$1
  shift
  status=0
  "$@" || status=$?
  [ $status = 77 ] && echo "skipped: $name" && return
  [ $status = 0 ] || echo "FAILED ($status): $name"
  worse $status
}

facts() {
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
  printf '{"run": "%s-%s", "commit": "%s", "device": "%s", "driver": "%s"}' \
    "$(date -u +%Y%m%dT%H%M%SZ)" $$ "$(commit)" "$name" "$(driver)"
}

# What the package is found by.
as_package() {
  PYTHONPATH=$PWD/runtime/python:$tree/wheels PYTHONDONTWRITEBYTECODE=1 PISA_LIBRARY=$tree/lib/libpisa.so \
    PISA_PACKS=$(cd "$packs" && pwd) timeout "$(left)" "$@"
}

host_time_c() {
  timeout "$(left)" "$tree/tests/bin/host_time" --facts "$(facts)" --limit 5 "$@" >>"$out/host.jsonl"
}
host_time_torch() {
  as_package "$python" tests/bench/host_time.py --launches "$tree/lib/libhost_launches.so" --facts "$(facts)" \
    --limit 15 ${HOST:-} "$@" >"$out/host.part"
}

time_host() {
  : >"$out/host.jsonl"
  chosen=
  for spec in ${specs:-hybrid flux1_dev dense pyramid_lm}; do
    [ -e "$packs/$spec.pack" ] && chosen="$chosen $packs/$spec.pack"
  done
  within "host time in C" host_time_c $chosen
  within "host time from torch" host_time_torch $chosen
  grep '^{' "$out/host.part" >>"$out/host.jsonl"
  grep -v '^{' "$out/host.part"
  rm -f "$out/host.part"
  sed 's/.*"side": \("[a-z]*"\), "call": \("[^"]*"\), "variant": \("[^"]*"\).*"launches": /\1 \2 \3 launches: /' "$out/host.jsonl"
}

# Two schedules of one result each, so that races are few.
tune_settings() {
  case $1 in flux1_dev) echo --set query=128 --set density=0.15 ;; esac
}

# A tune that is interrupted goes on where it was; then the choices at lengths that it never saw.
tune_one() {
  pack=$tree/tuned/$1.pack
  settings=$(tune_settings "$1")
  lengths=${TUNE_TOKENS:-2048,4096,8192,16384}
  timeout --preserve-status -s INT 3 $pisa tune "$pack" --tokens "$lengths" $settings ${TUNE:-} >"$out/tune.log" 2>&1
  status=$?
  [ $status = 130 ] || [ $status = 0 ] || worse $status
  kept=$(cat "$pack.tune" 2>/dev/null | grep -c result=)
  echo "$1: interrupted with $kept rows"
  tried "tune $1" $pisa tune "$pack" --tokens "$lengths" $settings ${TUNE:-}
  [ "$(cat "$pack.tune" 2>/dev/null | grep -c result=)" -ge "$kept" ] || worse 3
  cp "$pack.tune" "$out/"
  within "choices of $1" check_choices "$pack" "$lengths" $settings
}
check_choices() {
  pack=$1 lengths=$2
  shift 2
  timeout "$(left)" $pisa tune "$pack" --tokens "$lengths" "$@" --check "${CHECKS:-20}" --json >>"$out/tune.jsonl"
}

tune_packs() {
  : >"$out/tune.jsonl"
  rm -rf "$tree/tuned"
  mkdir -p "$tree/tuned"
  for spec in ${specs:-flux1_dev hybrid64}; do
    cp "$packs/$spec.pack" "$tree/tuned/" || { worse 2 && continue; }
    tune_one "$spec"
  done
}

# Where cuda_runtime.h and libcudart of the pip packages of torch are, for boxes without a toolkit.
cudart() {
  "$python" - <<'PYTHON'
import glob, os, sys
for folder in sys.path:
    for header in glob.glob(os.path.join(folder, "nvidia", "*", "include", "cuda_runtime.h")):
        root = os.path.dirname(os.path.dirname(header))
        for library in glob.glob(os.path.join(root, "lib", "libcudart.so.*")):
            print(root, library)
            sys.exit()
PYTHON
}

install_app() {
  prefix=$tree/prefix
  rm -rf "$prefix" "$tree/app"
  cmake --install "$tree" --prefix "$prefix" &&
    cmake -S docs/examples/app -B "$tree/app" -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$tree/app" || return 2
  [ -x "$tree/app/app_gpu" ] && return
  set -- $(cudart)
  [ $# = 2 ] || { echo "there is no CUDA runtime to build app_gpu with" && return 77; }
  library=$(dirname "$(find "$prefix" -name libpisa.so | head -n 1)")
  cc -std=c11 -O2 docs/examples/app/app_gpu.c -I "$prefix/include" -I "$1/include" -L "$library" -lpisa "$2" \
    -Wl,-rpath,"$library:$(dirname "$2")" -o "$tree/app/app_gpu" || return 2
}

# app_gpu twice: the same bits.
run_app() {
  [ -x "$tree/app/app_gpu" ] && [ -z "${DRY:-}" ] || return 77
  said=$(timeout "$(left)" "$tree/app/app_gpu" "$1") || return 3
  echo "$said"
  [ "$said" = "$(timeout "$(left)" "$tree/app/app_gpu" "$1")" ] || { echo "two runs differ" && return 3; }
}

try_app() {
  within "building the application" install_app >"$out/app.log" 2>&1
  grep -e '^skipped' -e '^FAILED' -e 'no CUDA runtime' "$out/app.log"
  for spec in ${specs:-flux1_dev}; do
    tried "app $spec" "$tree/app/app" "$packs/$spec.pack" 130
    within "app_gpu $spec" run_app "$packs/$spec.pack"
    tried "several contexts, $spec" "$tree/tests/bin/contexts_test" "$packs/$spec.pack"
  done
}

install_wheels() {
  [ -d "$wheels" ] || return 0
  [ -d "$tree/wheels" ] && return
  timeout "$(left)" "$python" -m pip install --quiet --no-index --no-deps --find-links "$wheels" --target "$tree/wheels" "$wheels"/*.whl
}

try_python() {
  within "wheels" install_wheels >"$out/python.log" 2>&1
  for test in gpu flux_gpu; do
    within "tests/python/${test}_test.py" as_package "$python" tests/python/${test}_test.py
  done >>"$out/python.log" 2>&1
  cat "$out/python.log"
}

# The build folder as a reader has it, with a compiler.
install_compiler() {
  [ -e "$pisac" ] || return 77
  xz -dc "$pisac" >"$tree/bin/pisac" && chmod +x "$tree/bin/pisac" && "$tree/bin/pisac" --version
}

# PATH with a ptxas: that of a toolkit, or of triton's package.
path_with_ptxas() {
  command -v ptxas >/dev/null && echo "$PATH" && return
  echo "$PATH:$("$python" -c 'import glob, os, sys
for folder in sys.path:
    for found in glob.glob(os.path.join(folder, "triton", "backends", "nvidia", "bin", "ptxas")):
        sys.exit(print(os.path.dirname(found)))')"
}

read_page() {
  case $1 in
  README) PATH=$(path_with_ptxas) timeout "$(left)" sh tests/readme/commands.sh "$PWD/README.md" "$tree" "$PWD" gpu 2>&1 ;;
  *) PATH=$(path_with_ptxas) as_package "$python" tests/docs/examples_test.py "docs/$1.md" . "$tree" gpu ;;
  esac
}

read_pages() {
  within "a compiler, $pisac" install_compiler
  [ -x "$tree/bin/pisac" ] || return
  for page in ${specs:-README tutorial-spec tutorial-tune tutorial-ship embedding}; do
    opened=$(now)
    within "$page" read_page "$page" >"$out/page.log"
    cat "$out/page.log" >>"$out/pages.log"
    grep -e '^FAILED' -e '^skipped' -e ' s  pisa' "$out/page.log"
    echo "$page: $(($(now) - opened)) s"
  done
  rm -f "$out/page.log"
}

case $job in
verify | bench | sanitize | all | host | tune | app | python | ship | pages) ;;
*)
  echo "usage: tests/gpu/on_device.sh verify|bench|sanitize|all [piecewise|selection] [SPEC ...]" >&2
  echo "       tests/gpu/on_device.sh host|tune|app|python|ship [SPEC ...]" >&2
  echo "       tests/gpu/on_device.sh pages [PAGE ...]" >&2
  exit 1
  ;;
esac
mkdir -p "$out" || exit 2
summary="commit $(commit), driver $(driver)"
part build 90 build_runtime
if [ $worst = 0 ]; then
  case $job in verify | all) part verify "${VERIFY_SECONDS:-400}" verify_packs ;; esac
  case $job in bench | all) part bench "${BENCH_SECONDS:-300}" bench_packs ;; esac
  case $job in sanitize | all) part sanitize "${SANITIZE_SECONDS:-200}" sanitize_packs ;; esac
  case $job in host | ship) part host "${HOST_SECONDS:-90}" time_host ;; esac
  case $job in tune | ship) part tune "${TUNE_SECONDS:-180}" tune_packs ;; esac
  case $job in app | ship) part app "${APP_SECONDS:-90}" try_app ;; esac
  case $job in python | ship) part python "${PYTHON_SECONDS:-150}" try_python ;; esac
  [ $job = pages ] && part pages "${PAGES_SECONDS:-300}" read_pages
fi
tar -cf "$out/all.tar" -C "$out" --exclude=./all.tar . # one file, where few come back
echo "$summary"
exit $worst
