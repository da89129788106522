#!/bin/sh
# cli_test.sh: `pisa quality` as a user types it, on the CPU.
# usage: cli_test.sh PISA TEST_PROGRAMS_FOLDER, in an empty folder of its own.
set -eu
pisa=$1 make_pack=$2/make_pack array=$2/array_tool
PISA_LIBCUDA=/nonexistent/libcuda.so
export PISA_LIBCUDA

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# refuse CODE WORDS ARGUMENTS...: the exit code, and words in the message; nothing on stdout
refuse() {
  code=$1 words=$2
  shift 2
  set +e
  "$pisa" quality "$@" >stdout 2>stderr
  got=$?
  set -e
  [ "$got" = "$code" ] || fail "exit $got, expected $code: $* ($(cat stderr))"
  grep -qF -e "$words" stderr || fail "'$words' is not in the message of: $* ($(cat stderr))"
  [ ! -s stdout ] || fail "stdout is not empty: $*"
}

has() { # has FILE WORDS
  grep -qF -e "$2" "$1" || fail "'$2' is not in $1: $(cat "$1")"
}

for method in hybrid drop dense plain threshold; do
  $make_pack $method $method.pack
done
$array make q.npy float32 1 2 4 300 64
$array make k.npy float32 2 2 2 1000 64
$array make v.npy float32 3 2 2 1000 64
files="--q q.npy --k k.npy --v v.npy"

# the table: a line per pack and density, dense once; both packs have one name and no choices of their own
$pisa quality drop.pack dense.pack $files --densities 0.25,1,spec 2>stderr && fail "densities that fall are taken"
$pisa quality hybrid.pack dense.pack $files --densities spec,0.25,1 >table 2>stderr
has table "q.npy: 8 heads of 64, 300 queries x 1000 keys, bf16"
grep -q "^sample density=0.125 *spec *2/16 " table || fail "the spec's budget: $(cat table)"
grep -q "^sample density=0.125 *0.25 *4/16 " table || fail "a density: $(cat table)"
[ "$(grep -c /16 table)" = 4 ] || fail "not four rows: $(cat table)"
[ ! -s stderr ] || fail "stderr is not empty: $(cat stderr)"

# other layouts and fewer heads: the same figures
for name in q k v; do
  $array swap $name.npy ${name}_bnhd.npy
done
$pisa quality drop.pack $files --name x --densities 0.25 --json >a.jsonl 2>table
$pisa quality drop.pack --q q_bnhd.npy --k k_bnhd.npy --v v_bnhd.npy --layout bnhd --name x --densities 0.25 --threads 1 \
  --json >b.jsonl 2>/dev/null
cmp a.jsonl b.jsonl
has table "0.25"
$pisa quality drop.pack $files --name x --densities 0.25 --heads 1,3 --json >few.jsonl 2>/dev/null
for head in '"b": 0, "h": 1,' '"b": 1, "h": 3,'; do
  line=$(grep -oF -e "{$head" -A0 few.jsonl) || fail "$head is not looked at"
  whole=$(grep -o "{${head}[^}]*}" a.jsonl) few=$(grep -o "{${head}[^}]*}" few.jsonl)
  [ "$whole" = "$few" ] || fail "$line is '$few' by itself, '$whole' among all"
done
! grep -q '"h": 0,' few.jsonl || fail "head 0 is looked at"

# variants
$pisa quality hybrid.pack $files --set density=0.25 --densities spec >table
has table "4/16"
$pisa quality hybrid.pack $files --all --densities spec >table
[ "$(grep -c /16 table)" = 1 ] || fail "variants that differ in density alone are looked at twice: $(cat table)"

# thresholds: one line of the picture with a point each; --set picks one; --densities is not for them
$pisa quality threshold.pack drop.pack $files --densities 0.25,0.5 --html page.html --json >a.jsonl 2>table
grep -q "sample .* tau 1 .*/16" table && grep -q "sample .* tau 0.2 .*/16" table || fail "thresholds: $(cat table)"
[ "$(grep -c /16 table)" = 4 ] || fail "not four rows: $(cat table)"
[ "$(grep -c '"density": null, "threshold": ' a.jsonl)" = 2 ] || fail "not two thresholds: $(cat a.jsonl)"
[ "$(grep -o '<g class="line">' page.html | wc -l)" = 6 ] || fail "not two lines in each of three charts"
$pisa quality threshold.pack $files --set threshold=1 >table
[ "$(grep -c /16 table)" = 1 ] || fail "--set threshold: $(cat table)"
$pisa quality threshold.pack $files --set threshold=0.20 --all >table
has table "tau 0.2"
[ "$(grep -c /16 table)" = 1 ] || fail "--set threshold --all: $(cat table)"

# synthetic tensors: same seed, same numbers
synthetic="--synthetic std=0.5,1 --between 1,2 --tokens 300 --densities 0.25"
$pisa quality hybrid.pack $synthetic --heads 1-2 --json --html page.html >a.jsonl 2>/dev/null
$pisa quality hybrid.pack $synthetic --heads 1-2 --threads 1 --json >b.jsonl 2>/dev/null
cmp a.jsonl b.jsonl
[ "$(wc -l <a.jsonl)" = 4 ] || fail "not four lines: $(cat a.jsonl)"
$pisa quality hybrid.pack $synthetic --heads 1-2 --seed 7 --json >b.jsonl 2>/dev/null
! cmp -s a.jsonl b.jsonl || fail "--seed changes nothing"

# the page holds everything itself, and text is escaped
has page.html "<svg id=\"spread-1\""
has page.html "<svg id=\"spread-2\""
$pisa quality hybrid.pack dense.pack $files --name '<a&"b">' --densities 0.125,0.5 --html page.html >/dev/null
for id in density-0 cost-0 recall-0 where; do
  has page.html "<svg id=\"$id\""
done
has page.html '&lt;a&amp;&quot;b&quot;&gt;'
! grep -qE 'src=|href=|url\(h|@import' page.html || fail "the page loads something"

# refusals of the user's input
refuse 1 "no PACK... is given"
refuse 1 "no option '--speed'" hybrid.pack --speed 9
refuse 1 "--v FILE is needed" hybrid.pack --q q.npy --k k.npy
refuse 1 "no --q, --k, --v" hybrid.pack $files --synthetic std=1
refuse 1 "--between needs --synthetic" hybrid.pack $files --between 1
refuse 1 "--tokens needs --synthetic" hybrid.pack $files --tokens 64
refuse 1 "--seed needs --synthetic" hybrid.pack $files --seed 1
refuse 1 "--name does not go with --synthetic" hybrid.pack --synthetic std=1 --name x
refuse 1 "--layout does not go with --synthetic" hybrid.pack --synthetic std=1 --layout bnhd
for list in 0 1.5 x 0.5,0.2 0.5,0.5 0.5, ,0.5 0.5,spec nan -1 inf; do
  refuse 1 "--densities is '$list'" hybrid.pack $files --densities $list
done
for list in x 1,0 1,1 2-1 1- -1 1,,2 0-99999; do
  refuse 1 "--heads is '$list'" hybrid.pack $files "--heads=$list"
done
for list in 1 std std= std=0 std=1,x std=2,1 std=spec; do
  refuse 1 "--synthetic is '$list'" hybrid.pack --synthetic $list
done
refuse 1 "--between is '0'" hybrid.pack --synthetic std=1 --between 0
refuse 1 "--tokens is '0'" hybrid.pack --synthetic std=1 --tokens 0
refuse 1 "expected at most" hybrid.pack --synthetic std=1 --tokens 99999999
refuse 1 "--layout is 'nbhd'" hybrid.pack $files --layout nbhd
refuse 1 "--device is 'gpu'" hybrid.pack $files --device gpu
refuse 1 "--scale is 1e-60" hybrid.pack $files --scale 1e-60
refuse 1 "--threads is 500" hybrid.pack $files --threads 500
refuse 1 "no variant has these settings" hybrid.pack $files --set leaf=3
refuse 1 "plain.pack is for head_dim 64, bf16, 1 query heads per key head, but hybrid.pack for head_dim 64, bf16, 2" \
  hybrid.pack plain.pack $files
refuse 1 "--heads names head 4, but q has 4 heads" hybrid.pack $files --heads 4
refuse 1 "must be the same" hybrid.pack --q q.npy --k k.npy --v q.npy
refuse 1 "heads / kv_heads" hybrid.pack --q k.npy --k k.npy --v v.npy

# the world failing
refuse 2 "absent.pack" absent.pack $files
refuse 2 "cannot open 'absent.npy'" hybrid.pack --q absent.npy --k k.npy --v v.npy
set +e
$pisa quality drop.pack $files --densities 0.5 --html absent/page.html >/dev/null 2>stderr
[ $? = 2 ] || fail "a page that cannot be written is no failure"
$pisa quality drop.pack $files --densities 0.5 --device cuda:0 >/dev/null 2>stderr
[ $? = 2 ] || fail "a missing GPU is no failure"
set -e

$pisa quality --help >help
has help "usage: pisa quality PACK... [options]"
