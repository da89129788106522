"""libpisa.so through ctypes: the functions of runtime/pisa.h; failures raise its sentences."""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_void_p
from pathlib import Path

# noqa: F401 below: the other modules take the structures from here
from ._abi import CALL, DECODE, PREFILL, Attention, CError, CpuOptions, PackInfo, Stride, Tensor  # noqa: F401


class Error(RuntimeError):
    """What libpisa refuses or what fails below it. status: one of its words, "unsupported", "corrupt pack", ..."""

    def __init__(self, message, status="invalid argument"):
        super().__init__(message)
        self.status = status


class ArgumentError(Error, ValueError):
    """An argument is wrong: the message names it, and what it may be."""


class NotFoundError(Error, FileNotFoundError):
    """`load` has found no such pack: the message tells which are shipped."""

    def __init__(self, message):
        super().__init__(message, "i/o error")


INVALID_ARGUMENT, NO_DEVICE = 1, 5

SIGNATURES = {
    "pisa_pack_open": [c_char_p, POINTER(c_void_p)],
    "pisa_pack_get_info": [c_void_p, POINTER(PackInfo)],
    "pisa_pack_find_variant": [c_void_p, POINTER(c_char_p), c_int, POINTER(c_int)],
    "pisa_module_load": [c_void_p, c_int, c_uint, POINTER(c_void_p)],
    "pisa_pyramid_size": [c_void_p, c_int, CALL, POINTER(c_size_t)],
    "pisa_kept_blocks": [c_void_p, c_int, CALL, POINTER(c_int64)],
    "pisa_workspace_size": [c_void_p, CALL, POINTER(c_size_t)],
    "pisa_tuned_variant": [c_void_p, c_int, CALL, POINTER(c_int)],
    "pisa_pack_choice": [c_void_p, POINTER(c_int), POINTER(c_double), POINTER(c_int64)],
    "pisa_cpu_run": [c_void_p, c_int, CALL, POINTER(CpuOptions)],
}


def _find():
    named = os.environ.get("PISA_LIBRARY")
    path = Path(named) if named else Path(__file__).parent / "libpisa.so"
    if not path.exists():
        raise ImportError(f"pisa: there is no {path}; install the wheel, or let PISA_LIBRARY name a libpisa.so")
    return str(path.resolve())


path = _find()
_lib = ctypes.CDLL(path)
_lib.pisa_version.restype = _lib.pisa_status_name.restype = c_char_p
for _name, _arguments in SIGNATURES.items():
    getattr(_lib, _name).argtypes = _arguments + [POINTER(CError)]
version = _lib.pisa_version().decode()

# A launch keeps the interpreter's lock: it takes microseconds, never waits, and so nobody else writes into its call.
# Its arguments are objects of their C types, or byref of such: argtypes would convert each anew.
launch = ctypes.PyDLL(path).pisa_launch
launch_address = ctypes.cast(launch, c_void_p).value


def check(error):
    """Raises what |error|, a CError that a call filled, says."""
    if error.status:
        fail(error.status, error.message)


def fail(status, message):
    """message: bytes, of a CError."""
    kind = ArgumentError if status == INVALID_ARGUMENT else Error
    raise kind(message.decode(errors="replace"), _lib.pisa_status_name(status).decode())


def call(name, *arguments):
    """Calls |name| with |arguments| and a place for its error, and raises that."""
    error = CError()
    getattr(_lib, name)(*arguments, byref(error))
    check(error)
