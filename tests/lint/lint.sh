#!/bin/sh
# lint.sh RULE: one rule of the house (README.md of this folder) over every source file of the repository.
# Prints each breach as file:line: text and exits 1 when there is one.
set -eu
cd "$(dirname "$0")/../.."

max_lines=450
max_lines_long=650
max_columns=100
max_bytes=4194304 # the largest pack of generated/ has 2.9 MB
long='compiler/main\.c|compiler/kernels/[a-z]+\.c' # a list of cases; one kernel, read from top to bottom

files() { # files ERE: paths that match, without what git ignores, and without the rules themselves
  { git ls-files --cached --others --exclude-standard 2>/dev/null || find . -type f | sed 's:^\./::'; } |
    sort -u | grep -Ev '^(build[^/]*|\.git|\.peers|\.whl|tests/lint)/' | grep -E "$1" |
    while IFS= read -r path; do [ -f "$path" ] && printf '%s\n' "$path"; done || true
}

hits() { # hits FILES_ERE PATTERN_ERE [grep options]: matching lines as file:line: text
  pattern=$2
  list=$(files "$1")
  shift 2
  [ -z "$list" ] || printf '%s\n' "$list" | tr '\n' '\0' | xargs -0 grep -nEH "$@" -e "$pattern" || true
}

fail_on_output() { # reads breaches, prints them with the reason
  breaches=$(cat)
  [ -z "$breaches" ] && exit 0
  printf '%s\n%s\n' "$1" "$breaches" >&2
  exit 1
}

code='\.(c|h|l|y|def)$'

includes() {
  {
    hits "^(dsl|runtime|tests/(dsl|runtime|cpu|tool|gpu))/.*$code" '#include [<"](mlir-c|llvm-c)/'
    hits "^dsl/.*$code" '#include "' | grep -Ev '#include "(dsl/|parser\.h|lexer\.h)' || true
    hits "^runtime/.*$code" '#include "' | grep -v '#include "runtime/' || true
    hits "^compiler/.*$code" '#include "' |
      grep -Ev '#include "(compiler/|dsl/|runtime/(abi\.def|sha256\.h|pisa\.h)"|mlir-c/|llvm-c/|[a-z0-9_]+\.h")' || true
    hits "^(dsl|compiler)/.*$code" 'cuda\.h|\bCU(result|stream|device|deviceptr|context|module|function|tensorMap)\b'
    hits "^runtime/.*$code" '#include <cuda'
  } | fail_on_output 'an include crosses a seam (docs/DESIGN.md, "The seams"):'
}

size() {
  files '\.(c|h|l|y|def|py|sh|cmake)$' | while IFS= read -r path; do
    limit=$max_lines
    printf '%s\n' "$path" | grep -Eqx "$long" && limit=$max_lines_long
    lines=$(wc -l <"$path")
    [ "$lines" -le "$limit" ] || echo "$path: $lines lines, at most $limit"
  done | fail_on_output 'a file does more than one thing:'
}

weight() {
  files '.' | tr '\n' '\0' | xargs -0 -r stat -c '%s %n' -- | awk -v max=$max_bytes '$1 > max' |
    fail_on_output "bytes that somebody left behind, more than $max_bytes:"
}

columns() {
  list=$(files "$code")
  printf '%s\n' "$list" | while IFS= read -r path; do
    awk -v max=$max_columns -v path="$path" \
      'length($0) > max { printf "%s:%d: %d columns\n", path, FNR, length($0) }' "$path"
  done | fail_on_output "a line is longer than $max_columns columns:"
}

format() {
  files '\.(c|h)$' | tr '\n' '\0' | xargs -0 clang-format --dry-run 2>&1 |
    grep -E 'warning|error' | fail_on_output 'not as clang-format 14 lays it out (clang-format -i FILE):'
}

paths() {
  hits '.' '(^|[^A-Za-z0-9._])/(work|home|root|Users)/' -I |
    fail_on_output 'a path of one machine:'
}

leftovers() {
  hits '.' '\b(TODO|FIXME|XXX|HACK)\b' -I |
    fail_on_output 'unfinished business belongs in the issue tracker:'
}

readmes() {
  files '.' | grep / | sed 's:/[^/]*$::' | sort -u |
    grep -Ev '^(\.ci|tests/lint)$' | while IFS= read -r folder; do
    # a folder of test cases is explained by the README above it
    up=$folder
    while [ "${up#tests/*/}" != "$up" ] && [ ! -f "$up/README.md" ]; do up=${up%/*}; done
    [ -f "$up/README.md" ] || echo "$folder"
  done | fail_on_output 'a folder without README.md:'
}

links() {
  files '\.md$' | while IFS= read -r page; do
    grep -oE '\]\([^)#:]+' "$page" | sed 's/^](//' | while IFS= read -r target; do
      [ -e "$(dirname "$page")/$target" ] || echo "$page: $target"
    done || true
  done | fail_on_output 'a link of a page leads nowhere:'
}

case ${1-} in
includes | size | weight | columns | format | paths | leftovers | readmes | links) "$1" ;;
*)
  echo "usage: lint.sh includes|size|weight|columns|format|paths|leftovers|readmes|links" >&2
  exit 2
  ;;
esac
