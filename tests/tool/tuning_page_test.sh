#!/bin/sh
# tuning_page_test.sh: what docs/tuning.md shows works: its commands, and its C on the table that they wrote; and the words that are tuned
# are those of the language.
# usage: tuning_page_test.sh PISA TEST_PROGRAMS_FOLDER FAKE_DRIVER SOURCE, in an empty folder of its own.
set -eu
pisa=$1 programs=$2 source=$4
PISA_LIBCUDA=$3
export PISA_LIBCUDA
fence=$source/tests/readme/fence.sh page=$source/docs/tuning.md

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# the page's own shapes take long: 24 heads of some thousand tokens
"$programs/make_tuned_pack" flux.pack 4 4 3 2
"$fence" sh "$page" 1 | sed -e 's/4608,16384/256,300/' -e 's/--heads 24/--heads 4 --no-verify/' >commands
"$fence" sh "$page" 2 | sed -e 's/std=0.5/std=0.5 --tokens 512/' -e 's/--max-error 0.02/--max-error 0.5/' >>commands
grep -q "^pisa tune flux.pack --tokens 256,300 .* --no-verify$" commands || fail "$(cat commands)"
for name in q k v; do
  heads=2
  [ $name = q ] && heads=4
  "$programs/array_tool" make $name.npy bfloat16 1 1 $heads 300 64
done
mkdir path && ln -s "$pisa" path/pisa
PATH=$PWD/path:$PATH sh -eux commands
[ "$(grep -c 'result=best' flux.pack.tune)" = 2 ] || fail "$(cat flux.pack.tune)"
grep -q "^choice " flux.pack.tune || fail "$(cat flux.pack.tune)"
[ -s sweep.html ] || fail "no page"

sed -i '/^choice/d' flux.pack.tune
ptx=$("$pisa" info --manifest flux.pack | awk '$1 == "variant" { at = $2 } $2 == "ptx" && at == 1 { print $6 }')
echo "choice variant=1 ptx=$ptx density=0.5 keep=0 bound=max_error limit=0.02 reached=0.01" >>flux.pack.tune
[ "$("$programs/tuning_page_test" flux.pack)" = "0  variant 3 density 0.5" ] || fail "$("$programs/tuning_page_test" flux.pack)"

words() {
  grep -o "$1[a-z_]*$1" | tr -d "$1" | sort | tr '\n' ' '
}
language=$(sed -n '/^### 9.2/,/^### 9.3/p' "$source/docs/LANGUAGE.md" | grep '^Candidates' | words '`')
runtime=$(grep 'names\[\] = {"query_tile"' "$source/runtime/variant.c" | words '"')
[ -n "$language" ] && [ "$language" = "$runtime" ] || fail "tuned: '$language' in the language, '$runtime' in the runtime"
