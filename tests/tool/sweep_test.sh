#!/bin/sh
# sweep_test.sh: `pisa sweep` on the CPU: points, the front, the page, the recorded choice, refusals.
# usage: sweep_test.sh PISA TEST_PROGRAMS_FOLDER, in an empty folder of its own.
set -eu
pisa=$1 make_pack=$2/make_pack array=$2/array_tool make_tuned=$2/make_tuned_pack
PISA_LIBCUDA=/nonexistent/libcuda.so
export PISA_LIBCUDA

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# expect CODE WORDS COMMAND...: the exit code, and words in stdout or stderr
expect() {
  code=$1 words=$2
  shift 2
  set +e
  "$@" >stdout 2>stderr
  got=$?
  set -e
  [ "$got" = "$code" ] || fail "exit $got, expected $code: $* ($(cat stdout stderr))"
  cat stdout stderr | grep -qF -e "$words" || fail "'$words' is not printed by: $* ($(cat stdout stderr))"
}

made="--synthetic std=0.5 --tokens 512"
for method in hybrid dense threshold select; do
  $make_pack $method $method.pack
done

# a density is a launch value; thresholds are variants
expect 0 "* no other point is both cheaper and better" $pisa sweep hybrid.pack $made
[ "$(grep -c 'density 0' stdout)" = 6 ] || fail "not six densities: $(cat stdout)"
[ ! -e hybrid.pack.tune ] || fail "a choice without a bound"
expect 0 "density 0.25" $pisa sweep hybrid.pack $made --densities spec,0.25
[ "$(grep -c ' spec ' stdout)" = 1 ] || fail "$(cat stdout)"
expect 0 "tau 0.2" $pisa sweep threshold.pack $made
[ "$(grep -c 'tau' stdout)" = 2 ] || fail "not two thresholds: $(cat stdout)"
expect 0 "dense" $pisa sweep dense.pack $made
$make_tuned tuned.pack 1 1 1 1
expect 0 "density 0.5" $pisa sweep tuned.pack $made
[ "$(grep -c 'density 0' stdout)" = 6 ] || fail "variants that differ in schedule are points: $(cat stdout)"

# the fastest that holds a bound is recorded, and other lines of the table stay
printf 'pisa-tune 1\nrow device=other driver=1 ptx=%064d phase=prefill tokens=1 heads=1 variant=0 ns=1 rounds=5 result=best\n' 0 \
  >hybrid.pack.tune
cp hybrid.pack.tune rows
expect 0 "chosen and recorded in hybrid.pack.tune: variant 0 (sample), density 0.5" \
  $pisa sweep hybrid.pack $made --min-recall 0.8 --densities 0.1,0.5,0.9
grep -q "^choice variant=0 ptx=[0-9a-f]* density=0.5 keep=0 bound=min_recall limit=0.8 reached=0.[0-9]*$" hybrid.pack.tune ||
  fail "$(cat hybrid.pack.tune)"
grep -v choice hybrid.pack.tune | cmp - rows || fail "rows are gone"
cp hybrid.pack.tune before
expect 1 "no point holds --max-error 1e-05: the least error is" $pisa sweep hybrid.pack $made --max-error 0.00001
cmp before hybrid.pack.tune || fail "a bound that nothing holds changed the table"
expect 0 "density 0.9" $pisa sweep hybrid.pack $made --max-error 0.9 --densities 0.9
[ "$(grep -c choice hybrid.pack.tune)" = 1 ] || fail "two choices"

# JSON and the page
$pisa sweep hybrid.pack $made --json --html page.html --min-recall 0.2 >lines 2>/dev/null
[ "$(wc -l <lines)" = 6 ] || fail "not six lines"
[ "$(grep -c '"chosen": true' lines)" = 1 ] || fail "not one chosen: $(cat lines)"
grep -q '"front": true' lines || fail "no front"
[ "$(grep -c '<svg' page.html)" = 2 ] || fail "not two pictures"
grep -q 'class="front chosen"\|class="chosen"' page.html || fail "the choice is not marked"
[ "$(grep -c '<tr class' page.html)" = 6 ] || fail "not six rows"

# tensors from files, and packs that select blocks
$array make q.npy bfloat16 1 1 4 300 64
$array make k.npy bfloat16 2 1 2 300 64
files="--q q.npy --k k.npy --v k.npy"
expect 0 "4 heads, 300 queries x 300 keys" $pisa sweep hybrid.pack $files
expect 0 "keep 5" $pisa sweep select.pack --q q.npy --k k.npy --min-recall 0.1 --html page.html
grep -q "bound=min_recall" select.pack.tune || fail "$(cat select.pack.tune)"
[ "$(grep -c '<svg' page.html)" = 1 ] || fail "not one picture"
expect 1 "--min-recall bounds their recall" $pisa sweep select.pack $files --max-error 0.1
expect 1 "swept on tensors of a model" $pisa sweep select.pack $made

# refusals
expect 1 "one argument too many" $pisa sweep hybrid.pack dense.pack $made
expect 1 "--v FILE is needed" $pisa sweep hybrid.pack --q q.npy --k k.npy
expect 1 "\`pisa sweep --help\`" $pisa sweep hybrid.pack
expect 1 "exclude each other" $pisa sweep hybrid.pack $made --max-error 0.1 --min-recall 0.5
expect 1 "at most 1" $pisa sweep hybrid.pack $made --min-recall 90
expect 1 "one spread" $pisa sweep hybrid.pack --synthetic std=0.5,1
expect 1 "cuda:0" $pisa sweep hybrid.pack $made --device cuda:1
expect 2 "cannot open the CUDA driver" $pisa sweep hybrid.pack $made --device cuda:0
expect 2 "cannot write 'absent/page.html'" $pisa sweep hybrid.pack $made --html absent/page.html
expect 1 "no option '--all'" $pisa sweep hybrid.pack $made --all
expect 1 "no option '--max-error'" $pisa quality hybrid.pack $made --max-error 1
