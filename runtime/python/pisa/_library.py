"""libpisa.so through ctypes: the structures and functions of runtime/pisa.h; failures raise its sentences."""

import ctypes
import os
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_void_p,
)
from pathlib import Path


class Error(RuntimeError):
    """What libpisa refuses or what fails below it. status: one of its words, "unsupported", "corrupt pack", ..."""

    def __init__(self, message, status="invalid argument"):
        super().__init__(message)
        self.status = status


class ArgumentError(Error, ValueError):
    """An argument is wrong: the message names it, and what it may be."""


class CError(Structure):
    _fields_ = [("status", c_int), ("message", c_char * 1024)]


class PackInfo(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("compiler", c_char_p),
        ("target", c_char_p),
        ("manifest", c_char_p),
        ("type", c_int),
        ("heads", c_int),
        ("kv_heads", c_int),
        ("head_dim", c_int),
        ("n_variants", c_int),
        ("has_cubin", c_int),
        ("validated", c_int),
    ]


Stride = c_int64 * 4


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("stride", Stride)]


class Attention(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("batch", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("n_q", c_int64),
        ("n_k", c_int64),
        ("q", Tensor),
        ("k", Tensor),
        ("v", Tensor),
        ("o", Tensor),
        ("lse", c_void_p),
        ("blocks", c_void_p),
        ("density", c_double),
        ("keep", c_int64),
        ("scale", c_float),
        ("k_lengths", c_void_p),
        ("lists", c_void_p),
        ("n_listed", c_int64),
        ("worth", c_void_p),
        ("q_starts", c_void_p),
        ("k_starts", c_void_p),
        ("pages", c_void_p),
        ("page_columns", c_int64),
        ("pyramid", c_void_p),
        ("phase", c_int),
        ("n_new", c_int64),
        ("append_completed", c_int),
        ("csr_offsets", c_void_p),
        ("csr_queries", c_void_p),
    ]


class CpuOptions(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("oracle", c_int),
        ("threads", c_int),
        ("progress", c_void_p),
        ("user", c_void_p),
    ]


INVALID_ARGUMENT, NO_DEVICE = 1, 5
PREFILL, DECODE = 0, 1
CALL = POINTER(Attention)

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
launch = ctypes.PyDLL(path).pisa_launch
launch.argtypes = [c_void_p, CALL, c_void_p, c_size_t, c_void_p, POINTER(CError)]


def check(error):
    """Raises what |error|, a CError that a call filled, says."""
    if error.status:
        kind = ArgumentError if error.status == INVALID_ARGUMENT else Error
        raise kind(error.message.decode(errors="replace"), _lib.pisa_status_name(error.status).decode())


def call(name, *arguments):
    """Calls |name| with |arguments| and a place for its error, and raises that."""
    error = CError()
    getattr(_lib, name)(*arguments, byref(error))
    check(error)
