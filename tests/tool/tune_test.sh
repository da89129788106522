#!/bin/sh
# tune_test.sh: `pisa tune` on the fake driver, whose launches take the time that a pack's code names: tables, races,
# interrupts, resuming, crossover, messages.
# usage: tune_test.sh PISA TEST_PROGRAMS_FOLDER FAKE_DRIVER, in an empty folder of its own.
set -eu
pisa=$1 make=$2/make_tuned_pack make_pack=$2/make_pack
PISA_LIBCUDA=$3
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

# rows: "tokens variant result" of every row of a table
rows() {
  sed -n 's/.*tokens=\([0-9]*\) .*variant=\([0-9]*\) .*result=\(.*\)/\1 \2 \3/p' "$1" | sort -n | tr '\n' ';'
}

rows_are() {
  [ "$(rows "$1")" = "$2" ] || fail "rows of $1 are $(rows "$1"), expected $2"
}

tune="$pisa tune t.pack --no-verify --tokens 256"

# the faster schedule of each density; a tie keeps what is written
$make t.pack 2 1 1 1
expect 0 "t.pack.tune: the fastest on fake device" $tune
rows_are t.pack.tune "256 0 slower;256 1 best;256 2 best;256 3 slower;"
grep -q "^pisa-tune 1$" t.pack.tune || fail "no header"
grep -q "heads=4 variant=2 ns=3000000 rounds=5 result=best" t.pack.tune || fail "$(cat t.pack.tune)"
[ ! -e t.pack.tune.new ] || fail "a file is left behind"

# what is done is not done again
cp t.pack.tune before
expect 0 "variant 2  half_tile=on density=0.125" $tune
cmp before t.pack.tune || fail "a second run changed the table"
! grep -q "ms" stdout || fail "a second run timed something: $(cat stdout)"
expect 0 "0.500 of the best, best so far" $tune --again
rows_are t.pack.tune "256 0 slower;256 1 best;256 2 best;256 3 slower;"

# faster on the whole, but not at the longest shapes of the row: the variant as written stays. So it does where the best
# so far is another one
rm t.pack.tune
$make t.pack 2 1 "1 per_cta=0.07" 1 1.92 "0.6 per_cta=0.107"
expect 0 "0.906 of the best, but not faster than as written everywhere" $tune --set density=0.125
grep -q "0.958 of the best, but not faster than as written everywhere" stdout || fail "$(cat stdout)"
rows_are t.pack.tune "256 0 slower;256 2 slower;256 4 best;256 5 slower;"
rm t.pack.tune
$make t.pack 2 1 1 1
expect 0 "" $tune

# other lengths are other rows; lengths of one bucket share a row; a restriction to one density
rm t.pack.tune
expect 0 "not faster" $pisa tune t.pack --no-verify --tokens 256,130,270,130 --set density=0.25
rows_are t.pack.tune "128 1 best;128 3 slower;256 1 best;256 3 slower;"
expect 0 "best so far" $tune --batch 2 --heads 8
[ "$(grep -c heads=16 t.pack.tune)" = 4 ] || fail "$(cat t.pack.tune)"
rows_are t.pack.tune "128 1 best;128 3 slower;256 0 slower;256 1 best;256 1 best;256 2 best;256 3 slower;256 3 slower;"

# two variants with other code: what was said of the old ones is gone
$make t.pack 1 1 3 1
expect 0 "3.000 of the best, not faster" $tune
rows_are t.pack.tune "128 1 best;128 3 slower;256 0 best;256 1 best;256 1 best;256 2 slower;256 3 slower;256 3 slower;"

# interrupted: at most the variant in flight is lost, and the same command goes on
rm t.pack.tune
$make t.pack 3 1 2 1 2.5 1.5
for at in 1 9 32 80 108 160; do
  set +e
  FAKE_CUDA_INTERRUPT=cuEventElapsedTime=$at $tune >stdout 2>stderr
  code=$?
  set -e
  [ $code = 130 ] || [ $code = 0 ] || fail "exit $code after an interrupt ($(cat stderr))"
  [ $code = 0 ] || grep -q "interrupted with" stderr || fail "no message: $(cat stderr)"
  [ ! -e t.pack.tune ] || $pisa info t.pack >/dev/null || fail "a table cut short"
done
expect 0 "the fastest" $tune
rows_are t.pack.tune "256 0 slower;256 1 best;256 2 slower;256 3 slower;256 4 slower;256 5 best;"
rm t.pack.tune
FAKE_CUDA_INTERRUPT=cuEventElapsedTime=40 $tune >stdout 2>stderr || true
rows_are t.pack.tune "256 0 best;"

# a variant that differs from the oracle is never chosen: kernels of the fake driver write nothing
rm t.pack.tune
expect 3 "wrong: never chosen" $pisa tune t.pack --tokens 256 --set density=0.25
rows_are t.pack.tune "256 1 wrong;256 3 wrong;"
expect 3 "wrong" $pisa tune t.pack --tokens 256 --set density=0.25
expect 0 "best so far" $tune --again --set density=0.25

# crossover: launches take the same time whatever the length, so one of the two always wins
$make_pack dense d.pack
expect 0 "dense was faster at every length" $pisa tune t.pack --no-verify --tokens 1024 --dense d.pack
$make_pack slow_dense s.pack # a millisecond for each 128 queries of a head, the method 45 in all: from 11.25 blocks on
$make m.pack 15 15 15 15
expect 0 "the line for the spec: below 1536 tokens use dense" \
  $pisa tune m.pack --no-verify --tokens 4096 --dense s.pack --set density=0.125 --rounds 5
expect 0 "the method was faster at every length" $pisa tune m.pack --no-verify --tokens 4096 --dense s.pack --heads 24
$make_pack plain p.pack
expect 1 "is not dense" $pisa tune t.pack --no-verify --tokens 256 --dense p.pack
expect 0 "nothing to tune" $pisa tune p.pack
[ ! -e p.pack.tune ] || fail "a table without a row"
$make_pack select s.pack
expect 0 "nothing to tune" $pisa tune s.pack

# the table's choices at shapes that were not tuned: good ones pass, one row that chooses badly does not
rm -f t.pack.tune
$make t.pack 2 1 1 1
expect 1 "run \`pisa tune\` first" $pisa tune t.pack --check 4
expect 0 "" $tune
expect 0 "20 shapes, seed 7" $pisa tune t.pack --check 20 --seed 7
[ "$(grep -c "1.000 of the best, 0.500 of as written  half_tile=on density=0.125" stdout)" = 10 ] || fail "$(cat stdout)"
[ "$(grep -c "1.000 of the best, 1.000 of as written  half_tile=off density=0.25" stdout)" = 10 ] || fail "$(cat stdout)"
! grep -q " 256 tokens" stdout || fail "a shape that was tuned: $(cat stdout)"
expect 0 '"over_best": 1.0000, "over_written": 0.5000}' $pisa tune t.pack --check 2 --json
python3 ${0%/*}/../gpu/record.py merge --tune stdout --docs docs >/dev/null || fail "not as record.py wants it"
[ "$(wc -l <docs/h200/tune.jsonl)" = 2 ] || fail "not recorded"
sed 's/variant=2 \(.*\)result=best/variant=2 \1result=slower/; s/variant=0 \(.*\)result=slower/variant=0 \1result=best/' \
  t.pack.tune >planted && cp planted t.pack.tune
expect 3 "2.000 of the best, 1.000 of as written  TOO SLOW" $pisa tune t.pack --check 3 --set density=0.125
expect 3 "the choice is too slow at 2 of 4 shapes" $pisa tune t.pack --check 4
$make t.pack 1 1 1.02 1 # within 1.05 of the best, and yet slower than as written
expect 0 "" $tune
expect 0 "" $pisa tune t.pack --check 2
sed 's/variant=0 \(.*\)result=best/variant=0 \1result=slower/; s/variant=2 \(.*\)result=slower/variant=2 \1result=best/' \
  t.pack.tune >planted && cp planted t.pack.tune
expect 3 "1.020 of the best, 1.020 of as written  TOO SLOW" $pisa tune t.pack --check 1 --set density=0.125
expect 130 "interrupted" env FAKE_CUDA_INTERRUPT=cuEventElapsedTime=20 $pisa tune t.pack --check 4

# refusals
expect 1 "this is what is tuned" $tune --set half_tile=on
expect 1 "no variant with a prefill phase has these settings" $tune --set density=0.3
expect 1 "--heads is no multiple" $tune --heads 3
expect 1 "--rounds is '4'" $tune --rounds 4
expect 1 "--rounds is above 100" $tune --rounds 101
expect 1 "--tokens is '0'" $pisa tune t.pack --tokens 0
expect 2 "cannot open" $pisa tune absent.pack
sed 's/result=best/result=fast/' t.pack.tune >damaged && cp damaged t.pack.tune
expect 2 "t.pack.tune: table line" $tune
grep -q "result is 'fast'" stderr || fail "$(cat stderr)"
expect 2 "t.pack.tune: table line" $pisa info t.pack
rm t.pack.tune
mkdir t.pack.tune.new
expect 2 "cannot write" $tune
for symbol in cuInit cuStreamCreate cuEventCreate cuModuleLoadDataEx cuMemAlloc_v2 cuLaunchKernelEx cuEventElapsedTime; do
  set +e
  FAKE_CUDA_FAIL=$symbol=700 $tune >stdout 2>stderr
  code=$?
  set -e
  [ $code = 2 ] || fail "exit $code when $symbol fails ($(cat stderr))"
done
