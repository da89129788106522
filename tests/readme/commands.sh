#!/bin/sh
# commands.sh README BUILD SOURCE: types the README's commands that need no GPU, as they stand there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
readme=$1 build=$2 source=$3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
ln -s "$build" build
ln -s "$source/specs" specs

# q.npy, k.npy and v.npy: zeros [1, 1, 64, 128] as uint16; the header is padded to 128 bytes (.npy version 1).
for name in q k v; do
  {
    printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '<u2', 'fortran_order': False, 'shape': (1, 1, 64, 128), }"
    head -c 16384 /dev/zero
  } >$name.npy
done

"$here/fence.sh" sh "$readme" 2 | grep -Ev 'pisa +(verify|bench|tune)' >commands
sh -eux commands
[ "$(wc -c <o.npy)" -eq "$(wc -c <q.npy)" ]
