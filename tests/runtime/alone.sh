#!/bin/sh
# alone.sh SOURCE_DIR WORK_DIR CC: the runtime configures and builds without LLVM, flex, bison and C++.
set -eu
source=$1 work=$2 cc=$3
rm -rf "$work"
mkdir -p "$work/bin"
trap 'rm -rf "$work"' EXIT
# a PATH that holds a C compiler, its helpers and cmake, and nothing else
for tool in "$cc" cmake make sh ld as ar ranlib nm strip; do
  path=$(command -v "$tool") || { echo "$tool is missing: skipped"; exit 77; }
  ln -s "$path" "$work/bin/$(basename "$tool")"
done
alone() { env -u CMAKE_C_COMPILER_LAUNCHER PATH="$work/bin" "$work/bin/cmake" "$@" >"$work/log" 2>&1 || { tail -40 "$work/log"; exit 1; }; }
alone -S "$source" -B "$work/build" -G 'Unix Makefiles' -DPISA_COMPILER=OFF -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS=-O0
alone --build "$work/build" --target libpisa libpisa_shared
[ -f "$work/build/lib/libpisa.a" ] && [ -f "$work/build/lib/libpisa.so" ]
