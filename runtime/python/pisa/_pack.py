"""Packs: a file and the settings of a variant in; what its manifest says, and its module on each device, out."""

import os
import sys
import threading
from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_void_p
from pathlib import Path

from . import _library as lib

_packs = {}  # key -> Pack, for the life of the process: compiled graphs name packs by their keys
_lock = threading.Lock()


def folders():
    """Where `load` looks for a name: the folders of PISA_PACKS (separated like PATH), then the shipped packs."""
    named = [Path(folder) for folder in os.environ.get("PISA_PACKS", "").split(os.pathsep) if folder]
    return [*named, Path(__file__).parent / "packs"]


def packs():
    """The names that `load` knows, sorted."""
    return sorted({file.stem for folder in folders() for file in folder.glob("*.pack")})


def load(pack, **settings):
    """Opens a pack and picks one of its variants.

    pack: a path to a .pack file, or the name of a shipped one (`pisa.packs()` lists them).
    settings: choices of the variant, as `pisa info` prints them: load("flux1_dev", density="0.10", half_tile="on");
        others are the spec's. Numbers may be numbers: density=0.1. Without settings it is what `pisa sweep` recorded
        beside the pack, its budget included, else the spec as written.
    Returns a Pack. The same arguments give the same one, unless the file has changed; it stays loaded until the process
    ends. Raises pisa.NotFoundError, a FileNotFoundError, or pisa.Error when the file is no sound pack or has no such
    variant.
    """
    if not isinstance(pack, (str, bytes, os.PathLike)):
        raise lib.ArgumentError(f"pack is a {type(pack).__name__}, must be a name or a path")
    name = os.fsdecode(pack)
    return load_key(_key(os.path.abspath(name) if os.path.isfile(name) else name, settings))


def load_key(key):
    """The Pack of a key: "name", "path", "name[density=0.1 query=64]"."""
    name, _, choices = key.removesuffix("]").rpartition("[") if key.endswith("]") else (key, "", "")
    path = _path(name)
    stamp = [file.stat().st_mtime_ns for file in (path, Path(f"{path}.tune")) if file.exists()]
    with _lock:
        known = _packs.get(key)
        if known is None or known.stamp != stamp:
            known = _packs[key] = Pack(key, path, choices.split())
            known.stamp = stamp
        return known


def by_key(key):
    """The Pack of a key, without a look at its file where it is loaded."""
    return _packs.get(key) or load_key(key)


def _key(name, settings):
    if not settings:
        return name
    return f"{name}[{' '.join(f'{choice}={settings[choice]}' for choice in sorted(settings))}]"


def _path(name):
    direct = Path(name)
    if direct.is_file():
        return direct
    if direct.name == name and not direct.suffix:
        for folder in folders():
            if (folder / f"{name}.pack").is_file():
                return folder / f"{name}.pack"
    raise lib.NotFoundError(f"there is no pack {name!r}; shipped ones are {', '.join(packs()) or 'none'}")


def _lines(manifest, variant):
    """The lines of a manifest that hold for |variant|: {key: words}, of its own and those above all variants."""
    lines, current = {}, -1
    for line in manifest.splitlines():
        key, *words = line.split()
        if key == "variant":
            current = int(words[0])
        if current in (-1, variant):
            lines[key] = words
    return lines


def _always(manifest, variant):
    """The words of the always lines of |variant|; its own replace those above all variants."""
    found, current = {}, -1
    for line in manifest.splitlines():
        key, *words = line.split()
        if key == "variant":
            current = int(words[0])
        if key == "always":
            found.setdefault(current, []).append(words[0])
    return tuple(word for word in found.get(variant, found.get(-1, [])) if word != "none")


def _choices(manifest):
    """The choices of every variant, in order: [{"density": "0.15", ...}, ...]."""
    lines = (line.split() for line in manifest.splitlines())
    return [dict(word.split("=") for word in words[2:]) for words in lines if words[0] == "variant"]


class Pack:
    """One variant of a pack; `pisa.load` makes it. Attributes, all read-only:

    name, path, compiler, target: strings; key: what names this variant in compiled graphs
    dtype: "bf16" or "fp16"; head_dim: D; heads, kv_heads: the spec's; any H and Hk with the same group = H / Hk run
    method: "piecewise" or "pyramid" (block selection); mask: "none" or "causal"
    query, key_block: tokens of a query block and of a key block (of method pyramid: 1, and those of a leaf)
    keep: key blocks of a query (method pyramid; else None: they are a budget of each call)
    always: what each query reads exactly whatever it scores, as docs/ABI.md has it: ("first=512", "window=2")
    page: keys of a page of the cache, 0 without pages; phases: of what it was built for, "prefill", "decode"
    budget: (density, keep) of calls that give neither, as `pisa sweep` recorded; 0: the spec's
    variant, settings: its number and choices; variants: the choices of all
    validated: whether exactly this code has passed on a GPU; manifest: the whole text (docs/ABI.md)
    """

    def __init__(self, key, path, settings):
        self.key, self.path = key, str(path)
        self._handle, self._modules, self._lock = c_void_p(), {}, threading.Lock()
        info, variant = lib.PackInfo(), c_int()
        lib.call("pisa_pack_open", os.fsencode(path), byref(self._handle))
        lib.call("pisa_pack_get_info", self._handle, byref(info))
        words = (c_char_p * max(1, len(settings)))(*(word.encode() for word in settings))
        lib.call("pisa_pack_find_variant", self._handle, words, len(settings), byref(variant))
        density, keep = c_double(), c_int64()
        if not settings:
            lib.call("pisa_pack_choice", self._handle, byref(variant), byref(density), byref(keep))
        self.variant, self.budget = variant.value, (density.value, keep.value)
        self.name, self.compiler, self.target = (text.decode() for text in (info.name, info.compiler, info.target))
        self.manifest, self.validated = info.manifest.decode(), bool(info.validated)
        self.variants = _choices(self.manifest)
        self.settings = self.variants[self.variant]
        self._read(_lines(self.manifest, self.variant))
        self.always = _always(self.manifest, self.variant)
        if "torch" in sys.modules:
            from . import _torch_ops  # noqa: F401 (so that the ops are there before a graph asks for them)

    def _read(self, lines):
        fields = {key: dict(word.split("=") for word in words if "=" in word) for key, words in lines.items()}
        shape = fields["shape"]
        self.dtype, self.mask, self.head_dim = shape["type"], shape["mask"], int(shape["head_dim"])
        self.heads, self.kv_heads = int(shape["heads"]), int(shape["kv_heads"])
        self.group = self.heads // self.kv_heads
        self.method, self.selects = lines["method"][0], lines["method"][0] == "pyramid"
        if self.selects:
            self.query, self.key_block = 1, int(fields["pyramid"]["leaf"])
            self.keep = int(fields["route"]["keep"])
        else:
            self.keep = None
            self.query, self.key_block = int(fields["blocks"]["query"]), int(fields["blocks"]["key"])
        self.page = int(fields["pyramid"]["page"] if self.selects else fields.get("pages", {"size": 0})["size"])
        self.phases = tuple(lines.get("phases", ["prefill"]))

    def __repr__(self):
        return f"pisa.Pack({self.key!r}, {self.method}, {self.dtype}, head_dim {self.head_dim}, group {self.group})"

    def module(self, device, request):
        """The code (a pisa_module) for calls like |request| on CUDA device number |device|, whose primary context is
        current: of the variant, or of the one that `pisa tune` found faster, with the same results."""
        variant = c_int()
        lib.call("pisa_tuned_variant", self._handle, self.variant, byref(request), byref(variant))
        key = device, variant.value
        with self._lock:
            if key not in self._modules:
                loaded = c_void_p()
                lib.call("pisa_module_load", self._handle, variant, 0, byref(loaded))
                self._modules[key] = loaded.value
            return self._modules[key]
