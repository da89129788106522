#!/bin/sh
# pair.sh PISAC SOURCE CC CXX SPEC GOLDEN [ARGS...]: the pair that `pisac build SPEC --format c ARGS` writes is that of
# GOLDEN.h.txt and, where it is there, GOLDEN.c.txt, without the words of the pack; both compile without a warning, the
# header as C++ too. CXX "": there is no C++ compiler. With PISA_UPDATE=1 the goldens are written instead.
set -eu
pisac=$1 source=$2 cc=$3 cxx=$4 spec=$5 golden=$6
shift 6
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
warnings='-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Werror'

"$pisac" build "$spec" --no-ptxas --format c "$@" -o "$scratch/pair.c" 2>"$scratch/messages" ||
  { cat "$scratch/messages"; exit 1; }

# The words of the pack and their number change with every kernel.
sed -e '/^0x[0-9a-f]*,/d' -e 's/PACK_BYTES = [0-9]*/PACK_BYTES = .../' "$scratch/pair.c" >"$scratch/seen.c"
cp "$scratch/pair.h" "$scratch/seen.h"
for ending in h c; do
  expected=$golden.$ending.txt
  if [ "${PISA_UPDATE-}" = 1 ] && { [ "$ending" = h ] || [ -f "$expected" ]; }; then
    cp "$scratch/seen.$ending" "$expected"
  elif [ "$ending" = h ] || [ -f "$expected" ]; then
    diff -u "$expected" "$scratch/seen.$ending"
  fi
done

# shellcheck disable=SC2086 # options
"$cc" -std=c11 $warnings -Wcast-qual -Wstrict-prototypes -Wmissing-prototypes -I"$source/runtime" \
  -c "$scratch/pair.c" -o "$scratch/pair.o"
[ -n "$cxx" ] || { echo 'no C++ compiler: the header was tried as C alone'; exit 0; }
# shellcheck disable=SC2086
"$cxx" -x c++ -std=c++11 $warnings -I"$source/runtime" -fsyntax-only "$scratch/pair.h"
