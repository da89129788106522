#!/bin/sh
# fence.sh LANGUAGE FILE [N]: the text of the N-th (first) fenced block of that language.
set -eu
awk -v open="\`\`\`$1" -v wanted="${3:-1}" '
  $0 == open { if (++seen == wanted) inside = 1; next }
  $0 == "```" { inside = 0 }
  inside { print; any = 1 }
  END { exit !any }' "$2"
