#!/bin/sh
# commands.sh README BUILD SOURCE [gpu]: types the README's commands, as they stand there: those that need no GPU, or all.
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

without='pisa +(verify|bench|tune)'
[ "${4:-}" = gpu ] && without='^$'
"$here/fence.sh" sh "$readme" 2 | grep -Ev "$without" >commands
sh -eux commands
[ "$(wc -c <o.npy)" -eq "$(wc -c <q.npy)" ]
