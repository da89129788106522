#!/bin/sh
# run.sh KIND PISAC ...: one case. Exit 0: as expected.
#   tokens|ast|spec PISAC FILE.pisa   `pisac emit --stage KIND` prints FILE.KIND
#   fmt PISAC FILE.pisa               `pisac fmt` prints FILE.fmt, and FILE.fmt again for FILE.fmt
#   json PISAC FILE.pisa              `pisac check --json` prints FILE.json
#   errors PISAC FILE.pisa            `pisac check` fails with status 1, prints FILE.err on stderr, nothing on stdout;
#                                     options from FILE.args if there is one
#   same PISAC FILE.pisa              accepted, also with ';' and line breaks exchanged; the canonical text reads back
#                                     as itself; the layout is that of `pisac fmt`
#   examples PISAC LANGUAGE.md        every fenced example is accepted, or refused with the message that follows
#   messages PISAC DSL_DIR DIR        every error of DSL_DIR has its sentence in messages.h, and every sentence is in an
#                                     .err file of DIR
#   clauses PISAC LANGUAGE.md FILE... every clause that FILEs cite exists
# With PISA_UPDATE=1 in the environment, goldens are written instead of compared.
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

status_is() { # status_is EXPECTED COMMAND...: stdout to $scratch/out, stderr to $scratch/err
  expected=$1 status=0
  shift
  "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
  [ "$status" = "$expected" ] && return
  echo "exit status $status, not $expected: $*"
  cat "$scratch/err"
  exit 1
}

enter() { # enter FILE.pisa: into its folder, so that messages name it alone; sets name
  cd "$(dirname "$1")"
  name=$(basename "$1" .pisa)
}

check_example() { # check_example FILE LINE: refused when there is a message, accepted otherwise
  cp "$1" example.pisa
  if [ -f "$1.text" ]; then
    status_is 1 "$pisac" check example.pisa
    diff -u "$1.text" err || { echo "$2: the message differs"; exit 1; }
  else
    status_is 0 "$pisac" check example.pisa
    diff -u /dev/null err || { echo "$2: accepted, but not silently"; exit 1; }
  fi
}

case $kind in
tokens | ast | spec)
  enter "$1"
  status_is 0 "$pisac" emit --stage "$kind" "$name.pisa"
  compare "$name.$kind" "$scratch/out"
  ;;
fmt)
  enter "$1"
  status_is 0 "$pisac" fmt "$name.pisa"
  compare "$name.fmt" "$scratch/out"
  status_is 0 "$pisac" fmt "$name.fmt"
  diff -u "$name.fmt" "$scratch/out"
  ;;
json)
  enter "$1"
  "$pisac" check --json "$name.pisa" >"$scratch/out" || [ $? = 1 ]
  compare "$name.json" "$scratch/out"
  ;;
errors)
  enter "$1"
  args=$(cat "$name.args" 2>/dev/null || true)
  status_is 1 "$pisac" check "$name.pisa" $args
  [ ! -s "$scratch/out" ] || { echo "stdout is not empty"; exit 1; }
  compare "$name.err" "$scratch/err"
  ;;
same)
  status_is 0 "$pisac" fmt "$1"
  diff -u "$1" "$scratch/out"
  status_is 0 "$pisac" emit --stage spec "$1"
  mv "$scratch/out" "$scratch/spec.pisa"
  status_is 0 "$pisac" emit --stage spec "$scratch/spec.pisa"
  diff -u "$scratch/spec.pisa" "$scratch/out"
  sed 's/#.*//' "$1" | tr '\n;' ';\n' >"$scratch/exchanged.pisa"
  status_is 0 "$pisac" emit --stage spec "$scratch/exchanged.pisa"
  diff -u "$scratch/spec.pisa" "$scratch/out"
  ;;
examples)
  language=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
  # example.LINE holds a spec, example.LINE.text the message that follows a refused one
  awk -v out="$scratch/example." '
    /^```pisa/ { file = out NR; last = $2 == "refused" ? file ".text" : ""; next }
    /^```text/ { if (last != "") file = last; last = ""; next }
    /^```/     { file = ""; next }
    file       { print > file }' "$language"
  cd "$scratch"
  n=0
  for example in $(ls | grep -E '^example\.[0-9]+$'); do
    check_example "$example" "$1:${example#example.}"
    n=$((n + 1))
  done
  [ "$(ls | grep -c 'text$')" = "$(grep -c '^```pisa refused' "$language")" ]
  [ "$n" -gt 5 ]
  ;;
messages)
  for source in "$1"/*.[cly]; do
    tr '\n' ' ' <"$source" | grep -oE '(diag_error|rule)\([^;]*;' | grep -v ' E_[A-Z]' | grep -E '"[^"]* [^"]*"' || continue
    echo "$source: an error whose sentence is not in messages.h"
    exit 1
  done
  # A sentence becomes a pattern: %s, %d and the like match anything.
  sed -e ':join' -e '/\\$/{N;s/\\\n//;b join' -e '}' "$1/messages.h" |
    sed -n 's/^#define \(E_[A-Z_]*\) *"\(.*\)"$/\1 \2/p' |
    sed -e 's/" *"//g' -e 's/[].*^$+?(){}|\\[]/\\&/g' -e 's/%0*[0-9]*[lz]*[a-z]/.*/g' >"$scratch/patterns"
  [ "$(wc -l <"$scratch/patterns")" = "$(grep -c '^#define E_' "$1/messages.h")" ]
  cat "$2"/*.err >"$scratch/seen"
  missing=0
  while read -r id pattern; do
    grep -Eq "error: $pattern\$" "$scratch/seen" && continue
    echo "no .err file has $id: $pattern"
    missing=1
  done <"$scratch/patterns"
  exit $missing
  ;;
clauses)
  language=$1
  shift
  missing=0
  for clause in $(cat "$@" | grep -oE '§[0-9]+(\.[0-9]+)?|"[0-9](\.[0-9]+)?"' | grep -oE '[0-9]+(\.[0-9]+)?' |
    sort -u); do
    grep -Eq "^#+ $clause[. ]" "$language" && continue
    echo "no clause $clause in $language"
    missing=1
  done
  exit $missing
  ;;
*)
  echo "unknown kind $kind" >&2
  exit 2
  ;;
esac
