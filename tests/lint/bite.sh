#!/bin/sh
# Each rule of lint.sh must fail on a tree that breaks it, and pass on a clean one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/tests/lint" "$tree/dsl" "$tree/runtime" "$tree/compiler"
cp "$here/lint.sh" "$tree/tests/lint/"
cp "$here/../../.clang-format" "$tree/"

status=0
clean() {
  for folder in dsl runtime compiler; do
    rm -f "$tree/$folder"/*
    echo "a folder" >"$tree/$folder/README.md"
  done
}
lint() {
  GIT_DIR=/nonexistent "$tree/tests/lint/lint.sh" "$1" >/dev/null 2>&1
}
bites() { # bites RULE FILE TEXT
  clean
  lint "$1" || { echo "$1: refuses a clean tree"; status=1; }
  printf "$3\n" >"$tree/$2"
  ! lint "$1" || { echo "$1: accepts $2: $3"; status=1; }
}

wide=$(printf '%0101d' 0)
bites includes dsl/a.c '#include "mlir-c/IR.h"'
bites includes dsl/a.c '#include "compiler/plan/plan.h"'
bites includes runtime/a.c '#include "dsl/spec.h"'
bites includes compiler/a.c '#include "runtime/cuda.h"'
bites includes compiler/a.c 'CUresult launch(void);'
bites size dsl/a.c "$(yes 'int x;' | head -451)"
bites columns dsl/a.c "// $wide"
bites paths dsl/a.c '// see /home/someone/notes'
bites leftovers dsl/a.c '// TODO: the rest'
bites links dsl/a.md 'see [the notes](notes.md)'
clean
head -c 4194305 /dev/zero >"$tree/dsl/a.npy"
! lint weight || { echo "weight: accepts 4 MiB and a byte"; status=1; }
clean
lint weight || { echo "weight: refuses a clean tree"; status=1; }
rm "$tree/dsl/README.md"
echo 'int x;' >"$tree/dsl/a.c"
! lint readmes || { echo "readmes: accepts a folder without one"; status=1; }
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
  bites format dsl/a.c 'int   x ;'
fi
exit $status
