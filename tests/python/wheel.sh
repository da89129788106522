#!/bin/sh
# wheel.sh PYTHON SOURCE WORK: builds the wheel of SOURCE with pip, installs it into a folder of its own and calls it.
set -eu
python=$1 source=$2 work=$3
skip() {
  echo "skipped: $*"
  exit 77
}
unset PISA_LIBRARY PISA_PACKS PYTHONPATH
"$python" -m pip --version >/dev/null 2>&1 || skip "there is no pip for $python"
"$python" -c 'import numpy' 2>/dev/null || skip "there is no NumPy for $python"
rm -rf "$work"
mkdir -p "$work"
install="$python -m pip --disable-pip-version-check install --quiet"
if ! "$python" -c 'import scikit_build_core' 2>/dev/null; then
  $install --timeout 20 --retries 1 --target "$work/backend" scikit-build-core >"$work/log" 2>&1 ||
    skip "scikit-build-core cannot be had: $(tail -n 1 "$work/log")"
  PYTHONPATH=$work/backend
  export PYTHONPATH
fi
$install --no-build-isolation --no-deps --config-settings build-dir="$work/build" --target "$work/site" "$source" \
  >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  exit 1
}
cd "$work"
PYTHONPATH=$work/site "$python" - "$work/site" <<'PYTHON'
import os
import sys
import sysconfig

import numpy as np

import pisa
from pisa import _extension

assert "torch" not in sys.modules, "torch came with pisa"
assert pisa.__file__.startswith(sys.argv[1]), pisa.__file__
assert "flux1_dev" in pisa.packs(), pisa.packs()
if os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    assert _extension.load() is not None, "the wheel has no extension, though Python's headers are here"
pack = pisa.load("flux1_dev", density="0.10")
q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 1600, 128)).astype(np.float32)
o = pisa.attention(q, k, v, pack)
assert o.shape == q.shape and np.isfinite(o).all()
PYTHON
