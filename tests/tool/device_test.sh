#!/bin/sh
# device_test.sh: `pisa run` on a driver whose kernels do nothing: everything around the launch, and every failure of
# the driver.
# usage: device_test.sh PISA TEST_PROGRAMS_FOLDER FAKE_DRIVER, in an empty folder of its own.
set -eu
pisa=$1 make_pack=$2/make_pack array=$2/array_tool
PISA_LIBCUDA=$3
export PISA_LIBCUDA

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

$make_pack plain plain.pack
$array make q.npy bfloat16 1 2 4 300 64
$array make k.npy bfloat16 2 2 4 1000 64
run="$pisa run plain.pack --q q.npy --k k.npy --v k.npy -o o.npy --lse l.npy --blocks b.npy"

for device in "" "--device cuda:0" "--layout bhnd"; do
  rm -f o.npy
  $run $device
  [ "$($array show o.npy)" = "bfloat16 [2, 4, 300, 64]" ] || fail "shape of o"
  [ "$($array show l.npy)" = "float32 [2, 4, 300]" ] || fail "shape of lse"
  [ "$($array show b.npy)" = "int32 [2, 4, 3, 2]" ] || fail "shape of blocks"
done

$array ints lists.npy 4x3x5 3 1 -1
$run --blocks-in lists.npy --k-lengths 900,0
[ "$($array show b.npy)" = "int32 [2, 4, 3, 5]" ] || fail "shape of blocks with given lists"

for symbol in cuInit cuDeviceGet cuDevicePrimaryCtxRetain cuCtxSetCurrent cuModuleLoadDataEx cuModuleGetFunction \
  cuMemAlloc_v2 cuMemcpyHtoD_v2 cuTensorMapEncodeTiled cuLaunchKernelEx cuCtxSynchronize cuMemcpyDtoH_v2; do
  rm -f o.npy
  set +e
  FAKE_CUDA_FAIL=$symbol=700 $run --blocks-in lists.npy --k-lengths 900,0 2>stderr
  code=$?
  set -e
  [ $code = 2 ] || fail "exit $code when $symbol fails ($(cat stderr))"
  [ -s stderr ] || fail "no message when $symbol fails"
  [ ! -e o.npy ] || fail "an output although $symbol failed"
done

set +e
$run --device cuda:7 2>stderr
code=$?
set -e
[ $code != 0 ] && grep -q 7 stderr || fail "device 7: exit $code ($(cat stderr))"
