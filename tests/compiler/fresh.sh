#!/bin/sh
# fresh.sh PISAC SPECS GENERATED C_COMPILER_ID: the packs and PTX in GENERATED are what SPECS give. Exit 77 where they
# cannot be compared: another LLVM, or a pisac that was not built by gcc (compiler/README.md). Cubins, and what ptxas
# said, are compared where the same ptxas is and address-space randomisation can be switched off.
set -eu
pisac=$1 specs=$2 generated=$3 compiler=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
status=0

manifest() { # manifest PACK: its text, without the header line
  sed -n '2,/^end$/p' "$1"
}

field() {
  sed -n "/^end\$/q; s/^$2 //p" "$1"
}

without_ptxas() { # drops what depends on ptxas: cubins, offsets behind them, reports, marks
  sed -e '/^part cubin/d' -e '/^compiler/d' -e '/^validated/d' -e 's/^\(part ptx 0\) [0-9]*/\1/' \
    -e 's/ registers=[0-9]* spill=[0-9]*//'
}

set -- "$generated"/*.pack
[ -f "$1" ] || { echo "no packs are kept yet"; exit 77; }
[ "$compiler" = GNU ] || { echo "pisac was built by $compiler, the kept packs by GNU"; exit 77; }
sh "$generated/generate.sh" "$pisac" "$specs" "$scratch"
kept=$(field "$1" compiler)
built=$(field "$scratch/$(basename "$1")" compiler)
[ "${kept%,*}" = "${built%,*}" ] || { echo "kept: $kept; here: $built"; exit 77; }
same_ptxas=no
[ "$kept" = "$built" ] && setarch -R true 2>/dev/null && same_ptxas=yes

for built in "$scratch"/*; do
  name=$(basename "$built")
  kept=$generated/$name
  case $name-$same_ptxas in
  *.ptx-* | *-yes) cmp "$kept" "$built" || status=1 ;;
  *.pack-no)
    manifest "$kept" | without_ptxas >"$scratch/kept"
    manifest "$built" | without_ptxas | diff -u "$scratch/kept" - || status=1
    ;;
  esac
done
for kept in "$generated"/*.pack "$generated"/*.ptx; do
  [ ! -f "$kept" ] || [ -f "$scratch/$(basename "$kept")" ] || { echo "$kept: no spec gives it"; status=1; }
done
[ $status = 0 ] || echo "rebuild them: cmake --build build --target generated"
exit $status
