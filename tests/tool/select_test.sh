#!/bin/sh
# select_test.sh: `pisa run` of a pack that selects blocks: the fixed command form of block selection,
#   pisa run PACK --q q.npy --k k.npy [--v v.npy -o o.npy] --blocks ids.npy [--worth w.npy]
# on the CPU, and on a driver whose kernels do nothing.
# usage: select_test.sh PISA TEST_PROGRAMS_FOLDER FAKE_DRIVER, in an empty folder of its own.
set -eu
pisa=$1 make_pack=$2/make_pack array=$2/array_tool
PISA_LIBCUDA=$3
export PISA_LIBCUDA

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# refuse WORDS COMMAND...: exit 1, and words in the message
refuse() {
  words=$1
  shift
  set +e
  "$@" 2>stderr
  got=$?
  set -e
  [ $got = 1 ] || fail "exit $got instead of 1: $* ($(cat stderr))"
  grep -qF -e "$words" stderr || fail "'$words' is not in the message of: $* ($(cat stderr))"
}

shows() {
  [ "$($array show "$2")" = "$1" ] || fail "$2 is $($array show "$2"), not $1"
}

$make_pack select select.pack
$make_pack drop drop.pack
$array make q.npy float32 1 2 4 300 64
$array make k.npy float32 2 2 2 300 64
$array make v.npy float32 3 2 2 300 64
select="$pisa run select.pack --q q.npy --k k.npy"

# selection alone, and with attention: the same lists
$select --blocks ids.npy --worth w.npy --device cpu
shows "int32 [2, 2, 300, 5]" ids.npy
shows "float32 [2, 2, 300, 5]" w.npy
$select --v v.npy -o o.npy --lse l.npy --blocks both.npy --worth both_w.npy --device cpu --threads 1
shows "float32 [2, 4, 300, 64]" o.npy
shows "float32 [2, 4, 300]" l.npy
$array print ids.npy >ids
$array print both.npy >both
cmp ids both || fail "attention changes the lists"
$array print w.npy >w
$array print both_w.npy >both_w
cmp w both_w || fail "attention changes the worth"

# the first query sees leaf 0 alone, the last one keeps the first, the previous and its own (18 of 0 .. 18)
[ "$(head -5 ids | tr '\n' ' ')" = "0 -1 -1 -1 -1 " ] || fail "first list: $(head -5 ids)"
[ "$(sed -n '1496p;1499,1500p' ids | tr '\n' ' ')" = "0 17 18 " ] || fail "last list: $(sed -n '1496,1500p' ids)"
awk 'NR % 5 != 1 && $1 != -1 && $1 <= last { exit 1 } { last = $1 }' ids || fail "a list is not ascending"

# the other layout and lengths; 300 keys each are all
for name in q k v; do
  $array swap $name.npy ${name}_bnhd.npy
done
$pisa run select.pack --q q_bnhd.npy --k k_bnhd.npy --layout bnhd --blocks b.npy --device cpu
$array same b.npy ids.npy 0
$select --blocks b.npy --k-lengths 300,300 --device cpu
$array same b.npy ids.npy 0
$select --blocks b.npy --k-lengths 300,0 --device cpu
$array print b.npy | tail -3000 | grep -qv -- -1 && fail "a sequence without keys has a list"

# the lists turned around: for every leaf the queries whose list has it
$select --blocks ids.npy --csr-offsets f.npy --csr-queries c.npy --k-lengths 300,77 --device cpu
shows "int32 [2, 40]" f.npy
shows "int32 [2, 3000]" c.npy
for name in ids f c; do
  $array print $name.npy >$name
done
# list e of ids: batch e / 3000, key head e / 1500 % 2, row e / 5 % 300; leaf j of batch b is 18 b + j + b (18.75 leaves)
awk '$1 >= 0 { e = NR - 1; b = int(e / 3000); printf "%d %d %d\n", int(e / 1500) % 2, int(300 * b / 16) + b + $1,
  300 * b + int(e / 5) % 300 }' ids | sort -n -k 1,1 -k 2,2 -k 3,3 >pairs
awk 'FILENAME == "f" { first[FNR - 1] = $1; next } { head = int((FNR - 1) / 3000); at = (FNR - 1) % 3000
  if (at == 0) leaf = 0
  while (leaf < 39 && first[40 * head + leaf + 1] <= at) leaf++
  if (leaf < 39) print head, leaf, $1; else if ($1 != -1) print "behind", $1 }' f c >turned
cmp pairs turned || fail "the queries of each leaf"
$select --v v.npy -o o.npy --csr-offsets g.npy --csr-queries d.npy --k-lengths 300,77 --device cpu
$array same f.npy g.npy 0
$array same c.npy d.npy 0

# pages: k and v laid out as pages, of which the last is not full, or pages already, with their table
$make_pack paged paged.pack
$select --v v.npy -o o.npy --lse l.npy --blocks ids.npy --device cpu
$select --v v.npy -o short_o.npy --k-lengths 300,77 --device cpu
for layout in bhnd bnhd; do
  [ $layout = bhnd ] && files="--q q.npy --k k.npy --v v.npy" || files="--q q_bnhd.npy --k k_bnhd.npy --v v_bnhd.npy"
  paged="$pisa run paged.pack $files --layout $layout --device cpu"
  $paged -o paged_o.npy --lse paged_l.npy --blocks paged.npy
  [ $layout = bhnd ] || { $array swap paged_o.npy back.npy && mv back.npy paged_o.npy; }
  $array same paged_o.npy o.npy 0
  $array same paged_l.npy l.npy 0
  $array same paged.npy ids.npy 0
  $paged -o paged_o.npy --k-lengths 300,77
  [ $layout = bhnd ] || { $array swap paged_o.npy back.npy && mv back.npy paged_o.npy; }
  $array same paged_o.npy short_o.npy 0
done
# [B, N, Hk, D] and [pages, page, Hk, D] are the same bytes
$array make whole.npy float32 2 2 304 2 64
$array make pool.npy float32 2 38 16 2 64
$array ints table.npy 2x19 $(seq 0 37)
$array ints turned.npy 2x19 $(seq 37 -1 0)
bnhd="$pisa run paged.pack --q q_bnhd.npy --layout bnhd --device cpu"
$bnhd --k whole.npy --v whole.npy -o whole_o.npy --k-lengths 304,200
$bnhd --k pool.npy --v pool.npy -o pool_o.npy --k-lengths 304,200 --pages table.npy
$array same pool_o.npy whole_o.npy 0
$bnhd --k pool.npy --v pool.npy -o pool_o.npy --k-lengths 304,200 --pages turned.npy
! $array same pool_o.npy whole_o.npy 0.1 2>/dev/null || fail "--pages changes nothing"
$array ints wrong.npy 2x19 $(seq 1 38)
$bnhd --k pool.npy --blocks b.npy --k-lengths 304,288 --pages wrong.npy
refuse "--pages: entry [1, 18] is 38, but k has pages 0 to 37" $bnhd --k pool.npy --blocks b.npy --pages wrong.npy
refuse "'wrong.npy' has shape [38], expected [2, columns]" sh -c "$array ints wrong.npy 38 0 && $bnhd --k pool.npy --blocks b.npy --pages wrong.npy"
refuse "k has shape [2, 304, 2, 64], but with --pages" $bnhd --k whole.npy --blocks b.npy --pages table.npy
refuse "--pages is for packs that find keys in pages" $select --blocks b.npy --pages table.npy --device cpu

# phase decode: the last queries get what prefill gives them; of a pack without prefill it is meant without a word
$make_pack decode decode.pack
$make_pack dense_paged dense_paged.pack
$array make last.npy float32 4 2 4 3 64
last="--q last.npy --k k.npy --v v.npy -o last_o.npy --device cpu"
$pisa run select.pack $last --blocks ids.npy
mv last_o.npy prefill_o.npy
for pack in "decode.pack" "select.pack --phase decode" "paged.pack --phase decode" "paged.pack"; do
  $pisa run $pack $last --blocks b.npy
  $array same last_o.npy prefill_o.npy 0
  $array same b.npy ids.npy 0
done
$pisa run dense_paged.pack $last --lse l.npy
shows "float32 [2, 4, 3]" l.npy
refuse "phase is prefill, but the pack was built without it" $pisa run decode.pack $last --phase prefill
refuse "--phase is 'both', expected prefill or decode" $pisa run decode.pack $last --phase both

# on a device
for pack in "decode.pack" "select.pack --phase decode" "paged.pack --phase decode" "paged.pack" "dense_paged.pack"; do
  $pisa run $pack --q last.npy --k k.npy --v v.npy -o last_o.npy --k-lengths 300,7
  shows "float32 [2, 4, 3, 64]" last_o.npy
done
$select --blocks b.npy --worth w.npy
shows "int32 [2, 2, 300, 5]" b.npy
$select --v v.npy -o o.npy --lse l.npy --blocks b.npy --k-lengths 300,7 --device cuda:0
shows "float32 [2, 4, 300, 64]" o.npy
FAKE_CUDA_FAIL=cuLaunchKernelEx=700 $select --blocks b.npy 2>stderr && fail "no failure of a launch"
grep -q "launching pyramid" stderr || fail "message of a failed launch: $(cat stderr)"

$select --blocks b.npy --csr-offsets f.npy --csr-queries c.npy
[ "$($array print c.npy | sort -u)" = -1 ] || fail "kernels that do nothing wrote queries"

# refusals
refuse "--csr-offsets and --csr-queries go together" $select --blocks b.npy --csr-offsets f.npy --device cpu
refuse "--csr-offsets and --csr-queries go together" $select --csr-offsets f.npy --device cpu
refuse "--csr-offsets and --csr-queries are for packs of method pyramid" \
  $pisa run drop.pack --q q.npy --k k.npy --v v.npy -o o.npy --csr-offsets f.npy --csr-queries c.npy --device cpu
refuse "-o FILE is needed" $select --v v.npy --device cpu
refuse "--v FILE is needed" $select --worth w.npy --device cpu
refuse "--v FILE is needed" $select -o o.npy --device cpu
refuse "--v is given, but no -o" $select --v v.npy --blocks b.npy --device cpu
refuse "--lse: lse is set, but o.data is NULL" $select --blocks b.npy --lse l.npy --device cpu
refuse "--blocks-in is for packs that route for blocks" $select --blocks b.npy --blocks-in ids.npy --device cpu
refuse "--density: density is 0.5, must be 0" $select --blocks b.npy --density 0.5 --device cpu
refuse "--keep: keep is 7, must be 0 or the pack's 5" $select --blocks b.npy --keep 7 --device cpu
refuse "-o FILE is needed: the pack does not select blocks" \
  $pisa run drop.pack --q q.npy --k k.npy --blocks b.npy --device cpu
refuse "--worth is for packs of method pyramid" \
  $pisa run drop.pack --q q.npy --k k.npy --v v.npy -o o.npy --worth w.npy --device cpu
refuse "must end in .npy" $select --blocks b.npy --worth w.txt --device cpu
