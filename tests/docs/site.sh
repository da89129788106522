#!/bin/sh
# site.sh DOXYGEN SOURCE BUILD WORK: makes the site, which has a page for each of docs and tells of each function of libpisa; and
# sees that a broken link and a function without a comment are errors.
set -eu
doxygen=$1 source=$2 build=$3 work=$4
fail() {
  echo "site.sh: $*" >&2
  exit 1
}
rm -rf "$work"
mkdir -p "$work/broken"
sed "s:^OUTPUT_DIRECTORY .*:OUTPUT_DIRECTORY = $work:" "$build/docs/Doxyfile" >"$work/Doxyfile"
"$doxygen" "$work/Doxyfile" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
for function in $(sed -n 's/^  \(pisa_[a-z_]*\);$/\1/p' "$source/runtime/libpisa.map"); do
  grep -q "class=\"memtitle\">.*$function()" "$work/html/pisa_8h.html" || fail "nothing about $function"
done
for page in LANGUAGE python install methods; do
  [ -s "$work/html/page-$page.html" ] || fail "no page $page"
done
grep -q "<h1\|<div class=\"title\"" "$work/html/index.html" || fail "no front page"
for drawing in "$source"/docs/drawings/*.svg; do
  [ -s "$work/html/$(basename "$drawing")" ] || fail "no drawing $drawing"
done

# The same with two faults.
sed "s:^OUTPUT_DIRECTORY .*:OUTPUT_DIRECTORY = $work/broken:; s:^INPUT .*:INPUT = $work/broken/page.md $work/broken/pisa.h:" \
  "$build/docs/Doxyfile" >"$work/broken/Doxyfile"
printf '# Page\n\nTo [nowhere](#not-there).\n' >"$work/broken/page.md"
{ cat "$source/runtime/pisa.h"; echo "int pisa_untold(void);"; } >"$work/broken/pisa.h"
! "$doxygen" "$work/broken/Doxyfile" >"$work/broken/log" 2>&1 || fail "faults are no errors"
grep -q "page-not-there\|not-there" "$work/broken/log" || fail "a broken link is no error: $(cat "$work/broken/log")"
grep -q "pisa_untold.*is not documented" "$work/broken/log" || fail "a function without a comment is no error: $(cat "$work/broken/log")"
