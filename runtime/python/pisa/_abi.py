"""The structures of runtime/pisa.h for ctypes, in its order. Loads nothing."""

from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_void_p


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


PREFILL, DECODE = 0, 1
CALL = POINTER(Attention)
