#!/bin/sh
# run.sh KIND PISAC ...: one case. Exit 0: as expected; 77: cannot be tried here, with the reason.
#   golden  PISAC GOLDEN ARGS...   stdout of `pisac ARGS` is the file GOLDEN
#   error   PISAC SPEC             `pisac build SPEC` fails with status 1 and says what stands in SPEC.err
#   facts   PISAC FILECHECK CHECK ARGS...   FileCheck finds the facts of CHECK in stdout of `pisac ARGS`
#   twice   PISAC SPEC             two builds give the same bytes
#   static  PISAC                  one file under 60 MB that asks for nothing but libc and libm
#   budget  PISAC SPEC             every variant assembles within its plan's budgets, without a warning of ptxas
# With PISA_UPDATE=1 in the environment, golden and error write what they see instead.
set -eu
kind=$1
pisac=$2
shift 2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

compare() { # compare EXPECTED SEEN
  if [ "${PISA_UPDATE-}" = 1 ]; then
    cp "$2" "$1"
  else
    diff -u "$1" "$2"
  fi
}

has_ptxas() {
  "$pisac" --version | grep -q '^ptxas [0-9]'
}

case $kind in
golden)
  golden=$1
  shift
  "$pisac" "$@" >"$scratch/seen" 2>"$scratch/messages" || { cat "$scratch/messages"; exit 1; }
  compare "$golden" "$scratch/seen"
  ;;
error)
  cd "$(dirname "$1")"
  name=$(basename "$1" .pisa)
  status=0
  "$pisac" build "$name.pisa" -o "$scratch/pack" --no-ptxas >/dev/null 2>"$scratch/seen" || status=$?
  [ "$status" = 1 ] || { echo "exit status $status, not 1"; cat "$scratch/seen"; exit 1; }
  compare "$name.err" "$scratch/seen"
  ;;
facts)
  filecheck=$1 check=$2
  shift 2
  "$pisac" "$@" 2>/dev/null | "$filecheck" "$check"
  ;;
twice)
  "$pisac" build "$1" -o "$scratch/one" 2>/dev/null
  "$pisac" build "$1" -o "$scratch/two" 2>/dev/null
  cmp "$scratch/one" "$scratch/two"
  ;;
static)
  bytes=$(wc -c <"$pisac")
  [ "$bytes" -lt 60000000 ] || { echo "$bytes bytes"; exit 1; }
  if ldd "$pisac" | grep -Ev 'linux-vdso|ld-linux|libc\.so|libm\.so'; then exit 1; fi
  ;;
budget)
  has_ptxas || { echo "no ptxas here"; exit 77; }
  "$pisac" build "$1" -o "$scratch/pack"
  ;;
*)
  echo "unknown kind $kind" >&2
  exit 2
  ;;
esac
