"""Torch tensors: those of a GPU to pisa_launch on the current stream, those of the CPU to pisa_cpu_run.

A call outside of graphs takes the short way, `eager`: what does not change between calls of the same shapes is kept in
a plan, the rest is a handful of addresses. `quick` and `launch` are shorter still: a common call like one before is made
by the extension _repeat (repeat.c), which reads tensors through DLPack's C functions, of torch 2.10 on. Under
torch.compile, and where torch watches (fake tensors, tracing), a call takes the custom ops of _torch_ops.
"""

import ctypes
import os
import threading
from ctypes import byref, c_int, c_size_t, c_void_p

import torch

from . import _extension, _request
from . import _library as lib
from ._request import Layout, Options, check

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
OUTPUTS = {"lse": torch.float32, "blocks": torch.int32, "worth": torch.float32}
MOST_PLANS = 1024  # of a thread; a server with more shapes makes some anew
MOST_LAYOUTS = 64  # repeats of calls that differ in their layouts alone, among which is searched

Tensor = torch.Tensor
is_tensor = torch.is_tensor
is_compiling, is_grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
watchers = torch._C._len_torch_dispatch_stack  # how many modes see the calls of this thread
device_number = torch.Tensor.get_device  # -1: the CPU
current_device = getattr(torch._C, "_cuda_getDevice", None)  # asked where there is a GPU tensor
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # absent where torch has no CUDA


def _maker(device):
    """f(shape, stride, dtype), a new tensor: that of compiled graphs, which takes half the time of torch's others."""
    quick = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(quick, f"_empty_strided_{device}", None) or (
        lambda shape, stride, dtype: torch.empty_strided(shape, stride, dtype=dtype, device=device)
    )


# Other packages give older torches a table of their own, whose stream is not torch's.
_repeat = _extension.load() if torch.__version__ >= (2, 10) else None
exchange = getattr(Tensor, "__dlpack_c_exchange_api__", None)
new_cpu, new_gpu = _maker("cpu"), _maker("cuda")  # the latter's is on the current device
new_workspace = new_gpu


class _Local(threading.local):
    """What each thread keeps: plans by their names, lists of repeats by what was asked for, and the devices whose
    context it has had current."""

    def __init__(self):
        self.plans, self.repeats, self.ready = {}, {}, set()


_local = _Local()


def run(pack, q, k, v, options, arrays, pyramid, out, copy):
    """One call: (o, lse, blocks, worth, csr_offsets, csr_queries), None for what is not asked for."""
    if copy:
        q, k, v = _place(q), _place(k), None if v is None else _place(v)
    memory = None if pyramid is None else pyramid.memory
    if is_compiling() or is_watched(q):
        from . import _torch_ops

        return _torch_ops.run(pack, q, k, v, options, arrays, memory, out)
    if is_grad_enabled():
        refuse_gradients(q, k, v)
    return eager(pack, q, k, v, options, arrays, memory, out)


def is_watched(q):
    """Whether torch wants to see the op instead of its launches."""
    return type(q) is not Tensor or watchers()


def refuse_gradients(q, k, v):
    if q.requires_grad or k.requires_grad or v is not None and v.requires_grad:
        raise NotImplementedError(
            "pisa has no gradients, but q, k or v asks for them: "
            "call it under torch.no_grad() or torch.inference_mode()"
        )


def make_memory(size, device):
    """Memory for a pyramid of |size| bytes, 256-byte aligned."""
    whole = torch.empty(size + 256, dtype=torch.uint8, device=device)
    first = -whole.data_ptr() % 256
    return whole[first : first + size]


class Plan:
    """What calls of the same layouts and options share. Belongs to one thread, and to one call while it is `busy`:
    addresses are written into `request`, and a finalizer or a signal's handler may call between two of them."""

    def __init__(self, pack, device, layouts, options):
        self.pack, self.device, self.layouts, self.options = pack, device, layouts, options
        self.attends, self.busy = options.attend, False
        request = self.request = _request.make(pack, *layouts, options)
        _request.mark(request, options)
        self.o_like = (*layouts[3], TYPES[pack.dtype]) if self.attends else None
        # the outputs beside o, and the integer inputs: those that such calls have
        shapes = enumerate(_request.outputs(pack, request, options)._asdict().items())
        self.made = [(i, name, _like(name, shape)) for i, (name, shape) in shapes if shape is not None]
        self.arrays = [pair for pair in _request.array_shapes(pack, request).items() if getattr(request, pair[0])]
        self.pyramid_bytes = _request.pyramid_bytes(pack, request) if options.has_pyramid else 0
        self.q, self.k, self.v, self.o = request.q, request.k, request.v, request.o
        self.error, self.workspace, self.size, self.stream = lib.CError(), c_void_p(), c_size_t(), c_void_p()
        if device >= 0:
            module = c_void_p(pack.module(device, request))
            lib.call("pisa_workspace_size", module, byref(request), byref(self.size))
            self.launch = (module, byref(request), self.workspace, self.size, self.stream, byref(self.error))
        self.workspace_like = ((self.size.value,), (1,), torch.uint8) if self.size.value else None

    def repeat(self, *inputs):
        """What _repeat makes calls of the layouts of |inputs| by; None where it cannot.

        inputs: (q, k, v, k_lengths, memory, out) of a call that was made; there are no other arrays.
        """
        likes = [None if inputs[5] is not None else self.o_like, *[None] * len(_NOTHING)]
        for i, _, like in self.made:
            likes[1 + i] = like
        return _repeat.make(
            exchange,
            Tensor,
            lib.launch_address,
            self.launch[0].value,
            bytes(self.request),
            self.size.value,
            self.device,
            current_device,
            (new_gpu, tuple(likes)),
            (new_workspace, self.workspace_like),
            lib.fail,
            inputs,
        )


def _like(name, shape):
    """What new_cpu and new_gpu make an output beside o from."""
    return shape, torch.empty(shape, device="meta").stride(), OUTPUTS.get(name, torch.int32)


def quick(pack, q, k, v, wishes, options_of, lengths=None, memory=None, out=None):
    """What `run` returns, for common calls with GPU tensors; None: leave it to `run`.

    wishes: what is asked for, as it came; with the layouts it is the name of a plan. options_of(pack, *wishes): its
        Options. lengths, memory: k_lengths and the bytes of a pyramid, where the options have them.
    """
    if is_compiling() or type(q) is not Tensor or watchers():
        return None
    if is_grad_enabled():
        refuse_gradients(q, k, v)
    return launch(pack, q, k, v, wishes, options_of, lengths, memory, out)


def launch(pack, q, k, v, wishes, options_of, lengths=None, memory=None, out=None):
    """`quick` for tensors that have none to watch them and that gradients were not asked for."""
    repeats = _local.repeats.get((pack, wishes))
    if repeats:
        found = _repeat.launch(repeats, q, k, v, lengths, memory, out)
        if found is not None:
            return found
    if device_number(q) < 0:
        return None
    options, arrays = options_of(pack, *wishes), {**NO_ARRAYS, "k_lengths": lengths}
    found = eager(pack, q, k, v, options, arrays, memory, out)
    exact = type(k) is Tensor and (v is None or type(v) is Tensor)
    if _repeat is not None and exact and device_number(q) == current_device():
        plan = _plan(pack, device_number(q), q, k, v, options, out)
        _remember((pack, wishes), plan.repeat(q, k, v, lengths, memory, out))
    return found


def eager(pack, q, k, v, options, arrays, memory, out, made=None):
    """The call on real tensors. made: the outputs beside o, where the caller has them; else they are made here."""
    device = device_number(q)
    if device >= 0 and device != current_device():
        with torch.cuda.device(device):
            return eager(pack, q, k, v, options, arrays, memory, out, made)
    if device >= 0 and device not in _local.ready:
        make_current(device)
    plan = _plan(pack, device, q, k, v, options, out)
    _check_tensors(pack, device, q, k, v)
    for name, shape in plan.arrays:
        _check_array(name, arrays[name], shape, device)
    if options.page_columns:
        _check_pages(plan, q, k, v, arrays, out)
    if memory is not None:
        check(device_number(memory) == device, f"pyramid is on {memory.device}, q on {q.device}")
    return _perform(plan, q, k, v, arrays, memory, out, made)


NO_ARRAYS = dict.fromkeys(("k_lengths", "lists", "q_starts", "k_starts", "pages"))
_NOTHING = tuple(_request.Outputs())


def _perform(plan, q, k, v, arrays, memory, out, made=None):
    """A checked call by its plan."""
    if plan.busy:
        plan = Plan(plan.pack, plan.device, plan.layouts, plan.options)
    plan.busy = True
    try:
        request, o, others, device = plan.request, out, _NOTHING, plan.device
        new = new_cpu if device < 0 else new_gpu
        plan.q.data, plan.k.data = q.data_ptr(), k.data_ptr()
        if plan.attends:
            if out is None:
                o = new(*plan.o_like)
            plan.v.data, plan.o.data = v.data_ptr(), o.data_ptr()
        if plan.made:
            others = [None] * len(_NOTHING)
            for i, name, like in plan.made:
                others[i] = x = new(*like) if made is None else made[i]
                setattr(request, name, x.data_ptr())
            others = tuple(others)
        if plan.arrays:
            for name, _ in plan.arrays:
                setattr(request, name, arrays[name].data_ptr())
        if memory is not None:
            if memory.numel() != plan.pyramid_bytes:
                _request.check_pyramid(memory.numel(), plan.pyramid_bytes)
            request.pyramid = memory.data_ptr()
        if device < 0:
            _run_cpu(plan.pack, request, memory)
            return (o,) + others
        if plan.workspace_like:
            # memory of the caching allocator, given back to this stream when the call returns
            workspace = new_workspace(*plan.workspace_like)
            plan.workspace.value = workspace.data_ptr()
        plan.stream.value = current_stream(device)
        if lib.launch(*plan.launch):
            lib.check(plan.error)
        return (o,) + others
    finally:
        plan.busy = False


def _remember(name, repeat):
    repeats = _local.repeats
    if repeat is None:
        return
    if len(repeats) >= MOST_PLANS:
        repeats.clear()
    known = repeats.setdefault(name, [])
    if len(known) >= MOST_LAYOUTS:
        known.clear()
    known.append(repeat)


def _keep(key, plan):
    plans = _local.plans
    if len(plans) >= MOST_PLANS:
        plans.clear()
    plans[key] = plan
    return plan


def _plan(pack, device, q, k, v, options, out):
    key = (pack, device, options, q.shape, q.stride(), k.shape, k.stride())
    if v is not None:
        key += (v.shape, v.stride())
    if out is not None:
        key += (out.shape, out.stride(), out.dtype, out.device)
    plan = _local.plans.get(key)
    if plan is not None:
        return plan
    if out is not None:
        check(out.shape == q.shape, f"out has shape {tuple(out.shape)}, must be q's {tuple(q.shape)}")
        check(out.dtype == q.dtype, f"out has type {out.dtype}, must be q's {q.dtype}")
        check(out.device == q.device, f"out is on {out.device}, q on {q.device}")
    o = (torch.empty_like(q) if out is None else out) if options.attend else None
    layouts = [None if x is None else Layout(tuple(x.shape), x.stride()) for x in (q, k, v, o)]
    return _keep(key, Plan(pack, device, layouts, options))


def _check_tensors(pack, device, q, k, v):
    kind = TYPES[pack.dtype]
    if q.dtype is kind and k.dtype is kind and device_number(k) == device and (device >= 0 or q.is_cpu and k.is_cpu):
        if v is None or v.dtype is kind and device_number(v) == device and (device >= 0 or v.is_cpu):
            return
    check(q.is_cpu or q.is_cuda, f"q is on {q.device}, must be on the CPU or a CUDA device")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x is not None:
            check(x.dtype is kind, f"{name} has type {x.dtype}, must be {kind} for {pack.name}")
            check(x.device == q.device, f"{name} is on {x.device}, q on {q.device}")


def _check_array(name, x, shape, device):
    said = _request.argument(name)
    check(x.dtype is torch.int32, f"{said} has type {x.dtype}, must be torch.int32")
    check(x.is_contiguous(), f"{said} must be contiguous")
    check(device_number(x) == device, f"{said} is on {x.device}, must be on q's device")
    _request.check_array_shape(name, x, shape)


def _check_pages(plan, q, k, v, arrays, out):
    """What libpisa cannot see, as it does not know how many pages there are. Those of a GPU are not waited for: there
    the entries are the caller's."""
    for name, x in (("k", k), ("v", v)):
        apart = out is None or x is None or _reach(out)[1] <= _reach(x)[0] or _reach(x)[1] <= _reach(out)[0]
        check(apart, f"out overlaps the pages of {name} in memory: outputs must be apart from all else")
    if plan.device < 0:
        pages, lengths = arrays["pages"], arrays["k_lengths"]
        lengths = None if lengths is None else lengths.numpy()
        _request.check_pages(plan.pack, plan.request, pages.numpy(), lengths, k.shape[0])


def _reach(x):
    """The addresses from the first element of |x| to behind its last."""
    elements = 1 + sum((extent - 1) * stride for extent, stride in zip(x.shape, x.stride()))
    return x.data_ptr(), x.data_ptr() + elements * x.element_size()


def _run_cpu(pack, request, memory):
    """The call on the CPU; a pyramid that a graph has moved to where it is not aligned is written in another place."""
    aligned = memory
    if memory is not None and memory.data_ptr() % 256:
        aligned = make_memory(memory.numel(), "cpu").copy_(memory)
        request.pyramid = aligned.data_ptr()
    lib.call("pisa_cpu_run", pack._handle, pack.variant, byref(request), None)
    if aligned is not memory:
        memory.copy_(aligned)


def _place(x):
    """|x|, or a copy where kernels cannot read it as it lies (pisa.h, pisa_tensor)."""
    strides = [x.stride(i) for i in range(x.dim() - 1) if x.shape[i] > 1]
    good = x.stride(-1) == 1 and all(stride % 8 == 0 for stride in strides)
    if good and (torch.compiler.is_compiling() or x.data_ptr() % 16 == 0):
        return x
    return x.clone(memory_format=torch.contiguous_format)


def make_current(device):
    """Lets this thread have the primary context of |device|, which torch uses, where it has none yet."""
    driver = ctypes.CDLL(os.environ.get("PISA_LIBCUDA", "libcuda.so.1"))  # as libpisa finds it
    current, context, number = c_void_p(), c_void_p(), c_int()
    driver.cuInit(0)
    driver.cuCtxGetCurrent(byref(current))
    if not current.value:
        driver.cuDeviceGet(byref(number), device)
        driver.cuDevicePrimaryCtxRetain(byref(context), number)
        driver.cuCtxSetCurrent(context)
    _local.ready.add(device)
