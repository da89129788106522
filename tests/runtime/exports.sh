#!/bin/sh
# exports.sh LIBRARY HEADER: the shared library exports exactly the functions that the header declares.
set -eu
exported=$(nm -D --defined-only "$1" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort)
declared=$(grep -oE '\bpisa_[a-z_]+\(' "$2" | tr -d '(' | sort -u)
[ "$exported" = "$declared" ] && exit 0
printf 'exported:\n%s\ndeclared:\n%s\n' "$exported" "$declared" >&2
exit 1
