#!/bin/sh
# man.sh PROGRAM SUMMARY PAGE: writes a man page of what PROGRAM --help and PROGRAM COMMAND --help say.
set -eu
program=$1 name=$(basename "$1") summary=$2
exec >"$3"

# Text as it stands: backslashes doubled, lines that begin like a request of troff guarded.
plain() {
  printf '.nf\n'
  sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\\([.']\\)/\\\\\\&\\1/"
  printf '.fi\n'
}

version=$("$program" --version | sed -n '1s/^[a-z]* \([0-9.]*\).*/\1/p')
cat <<TEXT
.TH $(printf %s "$name" | tr '[:lower:]' '[:upper:]') 1 "" "pisa $version" "User commands"
.SH NAME
$name \\- $summary
.SH SYNOPSIS
TEXT
"$program" --help | plain
for command in $("$program" --help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'); do
  printf '.SH %s %s\n' "$name" "$command"
  "$program" "$command" --help | plain
done
cat <<TEXT
.SH SEE ALSO
.BR pisa (1),
.BR pisac (1)
TEXT
