"""The extension _repeat (runtime/python/repeat.c), which makes calls from torch like earlier ones."""

import importlib.util
import sys
import sysconfig
from pathlib import Path

from . import _library as lib


def load():
    """The module, from beside libpisa; None where it was not built or this Python cannot have it: its binary
    interface is that of CPython 3.10 and later with a lock."""
    file = Path(lib.path).with_name("_repeat.abi3.so")
    able = sys.implementation.name == "cpython" and sys.version_info >= (3, 10)
    if not able or sysconfig.get_config_var("Py_GIL_DISABLED") or not file.exists():
        return None
    spec = importlib.util.spec_from_file_location("pisa._repeat", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
