#!/bin/sh
# quick.sh PISAC SPEC: a build takes at most 1.5 s without ptxas and 4 s with it, of processor time (a build runs one
# thing at a time, so that is its time on a machine that does nothing else). The best of three tries counts.
set -eu
pisac=$1 spec=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

milliseconds() { # milliseconds ARGS...: of one build, user and system time of it and of what it starts
  (
    "$pisac" build "$spec" -o "$scratch/pack" "$@" 2>"$scratch/messages" || { cat "$scratch/messages" >&2; exit 1; }
    times >"$scratch/times" # not through a pipe: that would be another shell, without children
    awk 'NR == 2 { split($0, t, /[ms ]+/); printf "%d\n", (t[1] * 60 + t[2] + t[3] * 60 + t[4]) * 1000 }' \
      "$scratch/times"
  )
}

within() { # within LIMIT ARGS...
  limit=$1 best=1000000
  shift
  for try in 1 2 3; do
    taken=$(milliseconds "$@")
    [ "$taken" -ge "$best" ] || best=$taken
  done
  echo "build ${*-}: $best ms, at most $limit"
  [ "$best" -le "$limit" ]
}

within 1500 --no-ptxas
if "$pisac" --version | grep -q '^ptxas [0-9]'; then
  within 4000
fi
