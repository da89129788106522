#!/bin/sh
# ship.sh: what is shipped with the packs, and what is told of them, tried on a GPU box: the jobs host, tune, app, python,
# pages and cover of on_device.sh, which sources this. In: its variables ($out, $tree, $packs, $specs ...) and functions (left,
# worse, commit, driver). Out: functions, one for each part; records in $out, and $result raised where something failed.

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

# Specs of tests/gpu/specs by name, or all of them.
cover_specs() {
  within "a compiler, $pisac" install_compiler
  [ -x "$tree/bin/pisac" ] || return
  chosen=
  for spec in ${specs:-$(cd "${COVER_SPECS:-tests/gpu/specs}" && ls | sed -n 's/\.pisa$//p')}; do
    chosen="$chosen ${COVER_SPECS:-tests/gpu/specs}/$spec.pisa"
  done
  PATH=$(path_with_ptxas) sh tests/gpu/cover.sh "$tree/bin/pisac" "$pisa" "$tree/cover" "$out" "$(left)" $chosen
  worse $?
}
