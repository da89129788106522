#!/bin/sh
# cover.sh PISAC PISA PACKS OUT SECONDS SPEC...: builds every variant of specs (.pisa) and verifies it, in parallel.
# In: a compiler, the tool `pisa`, a folder for packs. Out: OUT/cover.jsonl, the records of `pisa verify`; on stdout what
# failed, with its reason, and a summary line. Exit 0: all passed, 2: something was not built or not done, 3: a check failed.
#
# A unit of work is one pack: of a spec, with the first two words that vary set to one value each. So a spec of 28 variants
# is built by 16 cores. As cubins alone: the driver takes seconds to compile PTX. Cases: the small ones, a ragged length of
# many blocks, and with pyramids steps of decoding at such a length.
set -u

# unit SPEC NUMBER SETTINGS...: one pack, built and verified; $work/NUMBER.{jsonl,said,status} tell how it went.
unit() {
  spec=$1 number=$2
  shift 2
  at=$work/$number said=$*
  for setting in "$@"; do
    set -- "$@" --set "$setting"
    shift
  done
  status=2
  if [ "$(left)" -lt 2 ]; then
    echo "no time left" >"$at.said"
  elif ! timeout "$(left)" "$pisac" build "$spec" "$@" -o "$at.pack" >"$at.said" 2>&1; then
    echo "not built" >>"$at.said"
  else
    built=$(date +%s)
    status=0
    for cases in --quick $(more_cases "$at.pack"); do
      try "$at" $(echo "$cases" | tr : ' ')
    done
    echo "verified in $(($(date +%s) - built)) s" >"$at.time"
  fi
  echo "$status $(basename "$spec" .pisa) $said" >"$at.status"
  rm -f "$at.pack"
}

try() { # try PLACE OPTIONS...: more to say and a worse status where it fails
  place=$1 code=0
  shift
  timeout "$(left)" "$pisa" verify "$place.pack" --json --seed 1 "$@" ${VERIFY:-} 2>"$place.table" >>"$place.jsonl" || code=$?
  [ $code = 0 ] || grep -v -e ' ok$' -e '^spec ' -e '^seed ' -e '^$' "$place.table" >>"$place.said"
  [ $code -gt 3 ] && code=2
  [ $code -gt $status ] && status=$code
}

# Beside the small cases: what the pack has phases for.
more_cases() {
  method=$(grep -a -m 1 '^method ' "$1") phases=$(grep -a -m 1 '^phases ' "$1")
  case $phases in '' | *prefill*) echo --tokens:1990 ;; esac
  case $method$phases in *pyramid*decode*) echo --case:decode_long ;; esac
}

left() {
  seconds=$((end - $(date +%s)))
  [ $seconds -gt 0 ] && echo $seconds || echo 1
}

# The packs of a spec, a line each: the values of the first two words that vary, among the variants that can be built.
settings_of() {
  "$pisac" explain "$1" 2>"$work/explained" | sed -n '/^variants$/,/^$/s/^  *[0-9][0-9]*  //p' |
    cut -d ' ' -f 1,2 | sort -u
}

if [ "${1:-}" = unit ]; then # as xargs calls it
  work=$2 pisac=$3 pisa=$4 end=$5
  shift 5
  unit "$@"
  exit 0
fi

pisac=$1 pisa=$2 work=$3 out=$4 end=$(($(date +%s) + $5))
shift 5
rm -rf "$work"
mkdir -p "$work" || exit 2
number=0 worst=0
for spec in "$@"; do
  settings_of "$spec" >"$work/settings"
  grep -q error "$work/explained" && cat "$work/explained" && worst=2
  [ -s "$work/settings" ] || echo >"$work/settings"
  while read -r settings; do
    number=$((number + 1))
    echo "$spec $number $settings"
  done <"$work/settings" >>"$work/units"
  number=$(wc -l <"$work/units")
done
cores=$(nproc)
xargs -P "$cores" -L 1 sh "$0" unit "$work" "$pisac" "$pisa" "$end" <"$work/units"

: >"$out/cover.jsonl"
n=0 bad=0
while [ $n -lt "$number" ]; do
  n=$((n + 1))
  cat "$work/$n.jsonl" >>"$out/cover.jsonl" 2>/dev/null
  read -r status named <"$work/$n.status" || status=2 named="unit $n"
  [ "$status" = 0 ] && continue
  bad=$((bad + 1))
  echo "FAILED ($status): $named"
  sed 's/^/    /' "$work/$n.said" 2>/dev/null | tail -n 20
  [ "$status" -gt $worst ] && worst=$status
done
cases=$(grep -c '"verify": "case"' "$out/cover.jsonl")
passed=$(grep '"verify": "case"' "$out/cover.jsonl" | grep -c '"passed": true')
echo "cover: $# specs, $number packs, $bad of them not built or wrong; $passed of $cases cases passed"
exit $worst
