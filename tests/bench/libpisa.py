"""libpisa for the benchmarks: the C interface of runtime/pisa.h through ctypes, on torch tensors.

A pack is opened and loaded once (`Kernel`); `Kernel.bind` turns tensors into a call that can be
launched again and again for the price of one foreign call. Only what the benchmarks need is here.
"""

import ctypes
import os
import pathlib
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p

import torch

# The structures are the package's; its folder comes last, for it has names that others have too.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "runtime/python/pisa"))
from _abi import DECODE, PREFILL, Attention, CError, PackInfo, Tensor  # noqa: E402, F401 (DECODE: for select_beside)

SIGNATURES = {
    "pisa_pack_open": [c_char_p, POINTER(c_void_p)],
    "pisa_pack_get_info": [c_void_p, POINTER(PackInfo)],
    "pisa_pack_find_variant": [c_void_p, POINTER(c_char_p), c_int, POINTER(c_int)],
    "pisa_module_load": [c_void_p, c_int, ctypes.c_uint, POINTER(c_void_p)],
    "pisa_pyramid_size": [c_void_p, c_int, POINTER(Attention), POINTER(c_size_t)],
    "pisa_kept_blocks": [c_void_p, c_int, POINTER(Attention), POINTER(c_int64)],
    "pisa_workspace_size": [c_void_p, POINTER(Attention), POINTER(c_size_t)],
    "pisa_launch": [c_void_p, POINTER(Attention), c_void_p, c_size_t, c_void_p],
}


class Library:
    """libpisa.so with checked calls: what fails raises the library's own sentence."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(os.path.abspath(path))
        for name, arguments in SIGNATURES.items():
            function = getattr(self.lib, name)
            function.restype = c_int
            function.argtypes = arguments + [POINTER(CError)]

    def __call__(self, name, *arguments):
        error = CError()
        if getattr(self.lib, name)(*arguments, byref(error)) != 0:
            raise RuntimeError(f"{name}: {error.message.decode(errors='replace')}")


def view(x):
    """A torch tensor [B, H, N, D] as a pisa_tensor."""
    tensor = Tensor()
    tensor.data = x.data_ptr()
    tensor.stride = (c_int64 * 4)(*x.stride())
    return tensor


def ptx_digests(manifest, variant):
    """The sha256 of every PTX part of |variant| in a manifest (docs/ABI.md section 2)."""
    current, digests = -1, []
    for line in manifest.splitlines():
        fields = line.split()
        if fields[0] == "variant":
            current = int(fields[1])
        if fields[:2] == ["part", "ptx"] and current == variant:
            digests.append(fields[5])
    return digests


def always(manifest, variant):
    """The words of the always lines of |variant|, its own or those above all variants."""
    current, found = -1, {}
    for line in manifest.splitlines():
        words = line.split()
        if words[0] == "variant":
            current = int(words[1])
        if words[0] == "always":
            found.setdefault(current, []).append(words[1])
    return found.get(variant, found.get(-1, []))


def line_of(manifest, key, variant):
    """The line that begins with |key|, of |variant| or above all variants."""
    current, found = variant, None
    for line in manifest.splitlines():
        words = line.split()
        if words[0] == "variant":
            current = int(words[1])
        if words[0] == key and current == variant:
            found = line
    if found is None:
        raise ValueError(f"the manifest has no {key} line")
    return found


def fields(manifest, key, variant):
    """The line `key name=value ...` of |variant|, its own or the one above all variants, as a
    dictionary: {"query": "128", "key": "64"}."""
    words = line_of(manifest, key, variant).split()
    return dict(word.split("=") for word in words[1:] if "=" in word)


class Kernel:
    """One variant of a pack, loaded into torch's CUDA context."""

    def __init__(self, library, path, settings=()):
        torch.zeros(1, device="cuda")  # makes torch's primary context current in this thread
        self.call = library
        self.pack, self.module, self.info = c_void_p(), c_void_p(), PackInfo()
        variant = c_int()
        names = (c_char_p * max(1, len(settings)))(*[s.encode() for s in settings])
        library("pisa_pack_open", path.encode(), byref(self.pack))
        library("pisa_pack_get_info", self.pack, byref(self.info))
        library("pisa_pack_find_variant", self.pack, names, len(settings), byref(variant))
        library("pisa_module_load", self.pack, variant, 0, byref(self.module))
        self.variant = variant.value
        self.name = " ".join([self.info.name.decode(), *settings])
        manifest = self.info.manifest.decode()
        self.attend = fields(manifest, "attend", self.variant)
        self.always = always(manifest, self.variant)
        self.head_dim = self.info.head_dim
        self.group = self.info.heads // self.info.kv_heads  # query heads per key/value head
        self.dtype = (torch.bfloat16, torch.float16)[self.info.type]
        self.route = fields(manifest, "route", self.variant)
        self.selects = "method pyramid" in manifest.splitlines()
        if self.selects:
            pyramid = fields(manifest, "pyramid", self.variant)
            self.query, self.key = 1, int(pyramid["leaf"])
            self.children, self.page = int(pyramid["group"]), int(pyramid["page"])
            self.keep, self.route_kind = int(self.route["keep"]), "pyramid"
            if " flat " in f" {line_of(manifest, 'route', self.variant)} ":
                self.route_kind = "flat"
        else:
            blocks = fields(manifest, "blocks", self.variant)
            self.query, self.key = int(blocks["query"]), int(blocks["key"])
        self.threshold = self.route.get("budget") == "threshold"
        below = [line for line in manifest.splitlines() if line.startswith("below ")]
        self.dense_below = int(below[0].split()[1].split("=")[1]) if below else 0
        self.ptx_sha256 = ptx_digests(manifest, self.variant)

    def dense(self, n_k):
        """Whether a call with |n_k| keys reads every block."""
        return "all" in self.attend or n_k < self.dense_below

    def bind(self, q, k, v, density=0.0, want_lse=False, want_blocks=False):
        """A prepared launch on the current stream; see `Launch`."""
        return Launch(self, q, k, v, density, want_lse, want_blocks)


class Launch:
    """Calling it enqueues the whole method; `o`, `lse`, `blocks` are its outputs."""

    def __init__(self, kernel, q, k, v, density, want_lse, want_blocks):
        b, h, n_q, _ = q.shape
        self.kernel, self.inputs = kernel, (q, k, v)
        self.o = torch.full_like(q, float("nan"))
        self.request = Attention(
            struct_size=ctypes.sizeof(Attention),
            batch=b,
            heads=h,
            kv_heads=k.shape[1],
            n_q=n_q,
            n_k=k.shape[2],
            q=view(q),
            k=view(k),
            v=view(v),
            o=view(self.o),
            density=0.0 if "all" in kernel.attend or kernel.threshold else density,
        )
        kept, size = c_int64(), c_size_t()
        kernel.call(
            "pisa_kept_blocks", kernel.pack, kernel.variant, byref(self.request), byref(kept)
        )
        self.kept = kept.value
        self.lse = torch.full((b, h, n_q), float("nan"), device="cuda") if want_lse else None
        self.blocks = None
        if want_blocks and not kernel.dense(k.shape[2]):
            shape = (b, h, -(-n_q // kernel.query), self.kept)
            self.blocks = torch.full(shape, -1, device="cuda", dtype=torch.int32)
        self.request.lse = self.lse.data_ptr() if want_lse else None
        self.request.blocks = self.blocks.data_ptr() if self.blocks is not None else None
        kernel.call("pisa_workspace_size", kernel.module, byref(self.request), byref(size))
        self.workspace = torch.empty(max(1, size.value), device="cuda", dtype=torch.uint8)
        self.error = CError()
        self.arguments = (
            kernel.module,
            byref(self.request),
            self.workspace.data_ptr(),
            size.value,
            torch.cuda.current_stream().cuda_stream,
            byref(self.error),
        )
        self.function = kernel.call.lib.pisa_launch

    def __call__(self):
        if self.function(*self.arguments) != 0:
            raise RuntimeError(f"pisa_launch: {self.error.message.decode(errors='replace')}")


class Selection:
    """A prepared call of a pack that selects blocks; calling it enqueues it on the current stream.
    |keys|: an object with k, and for packs with pages table, room and lengths. `o` is None where |v|
    is: then it only selects. With |pyramid| (a tensor that `pyramid_of` made) means outlive the call;
    phase DECODE appends |n_new| keys."""

    def __init__(self, kernel, q, keys, v=None, want_lists=False, pyramid=None, phase=PREFILL, n_new=0):
        b, h, n_q, _ = q.shape
        self.kernel, self.inputs, self.pyramid = kernel, (q, keys, v), pyramid
        self.o = torch.full_like(q, float("nan")) if v is not None else None
        self.lse = torch.full((b, h, n_q), float("nan"), device="cuda") if v is not None else None
        self.blocks = None
        if want_lists or v is None:
            shape = (b, keys.k.shape[1], n_q, kernel.keep)
            self.blocks = torch.full(shape, -7, device="cuda", dtype=torch.int32)
        self.request = selection_request(q, keys, pyramid)
        self.request.phase, self.request.n_new = phase, n_new
        if v is not None:
            self.request.v, self.request.o = view(v), view(self.o)
            self.request.lse = self.lse.data_ptr()
        self.request.blocks = self.blocks.data_ptr() if self.blocks is not None else None
        size = c_size_t()
        kernel.call("pisa_workspace_size", kernel.module, byref(self.request), byref(size))
        self.workspace = torch.empty(max(1, size.value), device="cuda", dtype=torch.uint8)
        self.size, self.error = size.value, CError()

    def __call__(self):
        status = self.kernel.call.lib.pisa_launch(
            self.kernel.module,
            byref(self.request),
            self.workspace.data_ptr() if self.size else None,
            self.size,
            torch.cuda.current_stream().cuda_stream,
            byref(self.error),
        )
        if status != 0:
            raise RuntimeError(f"pisa_launch: {self.error.message.decode(errors='replace')}")


def selection_request(q, keys, pyramid=None):
    paged = keys.table is not None
    return Attention(
        struct_size=ctypes.sizeof(Attention),
        batch=q.shape[0],
        heads=q.shape[1],
        kv_heads=keys.k.shape[1],
        n_q=q.shape[2],
        n_k=keys.room,
        q=view(q),
        k=view(keys.k),
        pyramid=pyramid.data_ptr() if pyramid is not None else None,
        k_lengths=keys.lengths.data_ptr() if paged else None,
        pages=keys.table.data_ptr() if paged else None,
        page_columns=keys.table.shape[1] if paged else 0,
    )


def pyramid_of(kernel, q, keys):
    """Memory for the pyramid of the keys, not yet written."""
    size = c_size_t()
    request = selection_request(q, keys)
    kernel.call("pisa_pyramid_size", kernel.pack, kernel.variant, byref(request), byref(size))
    return torch.empty(size.value, device="cuda", dtype=torch.uint8)
