"""The extension _repeat (runtime/python/repeat.c), which makes calls from torch like earlier ones."""

import importlib.util
import sys
from pathlib import Path

from . import _library as lib


def load():
    """The module, from beside libpisa; None where this Python cannot have it or it was not built."""
    file = Path(lib.path).with_name("_repeat.abi3.so")
    if sys.implementation.name != "cpython" or sys.version_info < (3, 10) or not file.exists():
        return None
    spec = importlib.util.spec_from_file_location("pisa._repeat", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
