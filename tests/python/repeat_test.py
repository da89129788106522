"""The extension _repeat by itself, without torch: tensors that are NumPy arrays, whose type has DLPack's C functions."""

import ctypes
import gc
import sys
import unittest
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

from common import main, np, skip

from pisa import _extension
from pisa import _library as lib


repeat = _extension.load()
if repeat is None:
    skip("there is no extension: Python is no CPython of 3.10 or later, or the build has found no headers of it")


class DLTensor(ctypes.Structure):
    """As DLPack has it; written down once more, so that dlpack.h is held to something."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


LOOK = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, POINTER(DLTensor))
STREAM = ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))
LAUNCH = ctypes.PYFUNCTYPE(c_int, c_void_p, POINTER(lib.Attention), c_void_p, c_size_t, c_void_p, POINTER(lib.CError))


class Exchange(ctypes.Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("older", c_void_p),
        ("make", c_void_p),
        ("share", c_void_p),
        ("take", c_void_p),
        ("look", LOOK),
        ("current_stream", STREAM),
    ]


class Tensor:
    """One of torch, as far as it matters here. offset: bytes from `data` to the first element."""

    def __init__(self, array, device=(2, 0), code=4, offset=0):
        self.array, self.device, self.code, self.offset = array, device, code, offset
        self.shape = (c_int64 * array.ndim)(*array.shape)
        self.strides = (c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides))

    @property
    def address(self):
        return self.array.ctypes.data


class Subclass(Tensor):
    pass


@LOOK
def look(x, out):
    if x.code is None:
        return -1
    t = out[0]
    t.data, t.byte_offset = x.address - x.offset, x.offset
    (t.device_type, t.device_id), t.ndim = x.device, x.array.ndim
    t.code, t.bits, t.lanes = x.code, 8 * x.array.itemsize, 1
    t.shape = ctypes.cast(x.shape, POINTER(c_int64))
    t.strides = ctypes.cast(x.strides, POINTER(c_int64))
    return 0


@STREAM
def current_stream(device_type, device, out):
    out[0] = 1000 * device_type + device
    return 0


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]


def exchange(**changed):
    table = Exchange(**{"major": 1, "minor": 3, "look": look, "current_stream": current_stream, **changed})
    exchange.kept.append(table)
    return new_capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)


exchange.kept = []
MODULE, ROOM = 0x1230, 96


def new(shape, dtype=np.uint16, **rest):
    return Tensor(np.zeros(shape, dtype), **rest)


class Repeats(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = new((1, 4, 300, 64)), new((1, 2, 700, 64)), new((1, 2, 700, 64))
        self.launches, self.made, self.current, self.status = [], [], 0, 0

        @LAUNCH
        def launched(module, call, workspace, size, stream, error):
            copy = lib.Attention.from_buffer_copy(call[0])
            self.launches.append((module, copy, workspace, size, stream))
            error[0].status, error[0].message = self.status, b"it was refused" if self.status else b""
            return self.status

        self.launched = launched

    def make(self, *inputs, outputs=(((1, 4, 300, 64),), None, None, None, None, None), **changed):
        """A repeat of calls like one with |inputs|; what is |changed| is called as in the extension's words."""
        inputs = inputs or (self.q, self.k, self.v)
        inputs += (None,) * (6 - len(inputs))
        request = lib.Attention(struct_size=ctypes.sizeof(lib.Attention), n_k=700, keep=5, phase=1)
        request.q.stride[2] = 64
        for name in ("lse", "blocks", "worth", "k_lengths", "lists", "q_starts", "k_starts", "pages", "pyramid"):
            setattr(request, name, 7)  # the address of a call long gone
        request.q.data = request.csr_offsets = request.csr_queries = 7
        given = {
            "exchange": exchange(),
            "tensor": Tensor,
            "launch": ctypes.cast(self.launched, c_void_p).value,
            "module": MODULE,
            "request": bytes(request),
            "workspace_bytes": ROOM,
            "device": 0,
            "current_device": lambda: self.current,
            "made": (self.new_output, outputs),
            "room": (new, ((ROOM,), np.uint8)),
            "fail": lib.fail,
            "inputs": inputs,
        }
        return repeat.make(*{**given, **changed}.values())

    def new_output(self, shape):
        self.made.append(new(shape))
        return self.made[-1]

    def launch(self, repeats, *inputs):
        inputs = inputs or (self.q, self.k, self.v)
        return repeat.launch(repeats, *inputs, *(None,) * (6 - len(inputs)))

    def test_call(self):
        repeats = [self.make()]
        found = self.launch(repeats)
        self.assertEqual(found, (self.made[0], None, None, None, None, None))
        ((module, call, workspace, size, stream),) = self.launches
        self.assertEqual((module, size, stream), (MODULE, ROOM, 2000))
        self.assertTrue(workspace)
        self.assertEqual((call.n_k, call.keep, call.phase, call.q.stride[2]), (700, 5, 1, 64))
        pointers = [call.q.data, call.k.data, call.v.data, call.o.data]
        self.assertEqual(pointers, [x.address for x in (self.q, self.k, self.v, self.made[0])])
        names = ("k_lengths", "pyramid", "lse", "blocks", "worth", "lists", "q_starts", "k_starts", "pages")
        self.assertEqual({getattr(call, name) for name in (*names, "csr_offsets", "csr_queries")}, {None})

    def test_every_array(self):
        """Each input and output goes to its own field; a given out is the first result."""
        lengths, memory, out = new((1,), np.int32, code=0), new((4096,), np.uint8, code=1), new((1, 4, 300, 64))
        inputs = (self.q, self.k, self.v, lengths, memory, out)
        outputs = (None, ((1, 4, 300),), ((1, 4, 3, 5),), ((1, 4, 3, 4),), ((2, 12),), ((2, 90),))
        found = self.launch([self.make(*inputs, outputs=outputs)], *inputs)
        self.assertEqual(found, (out, *self.made))
        call = self.launches[0][1]
        fields = ("k_lengths", "pyramid", "lse", "blocks", "worth", "csr_offsets", "csr_queries")
        expected = [x.address for x in (lengths, memory, *self.made)]
        self.assertEqual([getattr(call, name) for name in fields], expected)
        self.assertEqual(call.o.data, out.address)

    def test_only_its_layouts(self):
        lengths = new((1,), np.int32, code=0)
        repeats = [self.make(self.q, self.k, self.v, lengths)]
        same = [self.q, self.k, self.v, lengths]
        others = [
            (0, new((1, 4, 301, 64))),  # a shape
            (0, Tensor(np.zeros((1, 300, 4, 64), np.uint16).transpose(0, 2, 1, 3))),  # strides
            (1, new((1, 2, 700, 64), device=(2, 1))),  # a device's number
            (1, new((1, 2, 700, 64), device=(1, 0))),  # its kind
            (2, new((1, 2, 700, 64), code=2)),  # a type
            (2, new((1, 2, 700, 64), np.uint8)),  # its bits
            (2, new((2, 700, 64))),  # dimensions
            (2, new((1, 1, 2, 700, 64))),  # more than any array has
            (2, Tensor(np.zeros((), np.uint16))),
            (3, None),
            (2, None),
            (1, Subclass(np.zeros((1, 2, 700, 64), np.uint16))),
            (1, new((1, 2, 700, 64), code=None)),  # what DLPack refuses
            (3, 5),
        ]
        for i, other in others:
            self.assertIsNone(self.launch(repeats, *same[:i], other, *same[i + 1 :]))
        self.assertIsNone(repeat.launch(repeats, *same, None, new((1, 4, 300, 64))))
        self.assertIsNone(self.launch([], *same))
        self.assertEqual((self.launches, self.made), ([], []))
        offset = Tensor(np.zeros((1, 4, 300, 64), np.uint16), offset=512)
        self.assertIsNotNone(self.launch(repeats, offset, *same[1:]))
        self.assertEqual(self.launches[0][1].q.data, offset.address)

    def test_the_newest_that_fits(self):
        long = new((1, 2, 900, 64))
        repeats = [self.make(module=1), self.make(module=2), self.make(self.q, long, long, module=3)]
        self.launch(repeats)
        self.launch(repeats, self.q, long, long)
        self.assertEqual([seen[0] for seen in self.launches], [2, 3])

    def test_another_current_device(self):
        repeats, self.current = [self.make()], 1
        self.assertIsNone(self.launch(repeats))
        self.assertEqual(self.launches, [])

    def test_without_room(self):
        self.launch([self.make(room=(new, None), workspace_bytes=0)])
        self.assertEqual(self.launches[0][2:4], (None, 0))

    def test_failures(self):
        """An error of a launch, of a maker or of the device goes to the caller."""
        self.status = lib.INVALID_ARGUMENT
        with self.assertRaisesRegex(lib.ArgumentError, "it was refused"):
            self.launch([self.make()])
        self.status = 4
        with self.assertRaisesRegex(lib.Error, "it was refused"):
            self.launch([self.make()])
        self.status = 0

        def full(*like):
            raise MemoryError("no room")

        for changed in ({"room": (full, (1,))}, {"made": (full, ((1,), *(None,) * 5))}, {"current_device": full}):
            with self.assertRaisesRegex(MemoryError, "no room"):
                self.launch([self.make(**changed)])
        with self.assertRaises(TypeError):
            self.launch([self.make(made=(5, ((1,), *(None,) * 5)))])
        self.assertEqual(len(self.launches), 2)

    def test_calls_within_calls(self):
        """Whatever making a tensor runs: it may call, and forget the repeat that is at work."""
        inner, armed = (new((1, 4, 300, 64)), self.k, self.v), [True]

        def interrupt(shape, dtype):
            if armed:
                armed.clear()
                self.launch(repeats, *inner)
                repeats.clear()
            return new(shape, dtype)

        repeats = [self.make(room=(interrupt, ((ROOM,), np.uint8)))]
        self.assertIs(self.launch(repeats)[0], self.made[0])
        addresses = [[call.q.data, call.o.data] for _, call, *_ in self.launches]
        self.assertEqual(
            addresses, [[inner[0].address, self.made[1].address], [self.q.address, self.made[0].address]]
        )

    def test_looking_runs_anything(self):
        """As far as the extension knows it may: the list may be another afterwards."""

        repeats = []

        @LOOK
        def forget(x, out):
            repeats.clear()
            return look(x, out)

        made = [self.make(), self.make(exchange=exchange(look=forget))]
        repeats.extend(made)
        made.clear()
        self.assertIsNone(self.launch(repeats))
        self.assertEqual((repeats, self.launches), ([], []))

    def test_exchange_fails(self):
        """A stream, or the address of what was made, that cannot be had. A function of ctypes cannot leave an exception
        behind, as one of torch does: so the interpreter makes its own of it."""

        @STREAM
        def no_stream(device_type, device, out):
            return -1

        with self.assertRaises(SystemError):
            self.launch([self.make(exchange=exchange(current_stream=no_stream))])

        def odd(*like):
            return new((1,), code=None)

        for changed in ({"room": (odd, (1,))}, {"made": (odd, ((1,), *(None,) * 5))}):
            with self.assertRaises(SystemError):
                self.launch([self.make(**changed)])
        self.assertEqual(self.launches, [])

    def test_shorter_request(self):
        """Of a package that knows fewer fields than the extension: the others are zero."""
        size = lib.Attention.csr_offsets.offset
        request = bytes(lib.Attention(struct_size=size, n_k=700))[:size]
        self.assertIsNotNone(self.launch([self.make(request=request)]))
        call = self.launches[0][1]
        self.assertEqual((call.struct_size, call.n_k, call.csr_offsets, call.csr_queries), (size, 700, None, None))
        with self.assertRaisesRegex(ValueError, "bytes"):
            self.make(request=bytes(ctypes.sizeof(lib.Attention) + 8))

    def test_what_cannot_be_repeated(self):
        for nothing in (None, 5, new_capsule(1, b"another", None)):
            self.assertIsNone(self.make(exchange=nothing))
        self.assertIsNone(self.make(Subclass(self.q.array), self.k, self.v))
        self.assertIsNone(self.make(exchange=exchange(major=2)))
        self.assertIsNone(self.make(exchange=exchange(look=LOOK())))
        for changed in ({"request": "text"}, {"made": (new, ())}, {"module": None}, {"inputs": [1]}, {"inputs": ()}):
            with self.subTest(changed), self.assertRaises((ValueError, TypeError)):
                self.make(**changed)
        with self.assertRaises(TypeError):
            repeat.launch([self.make()], self.q)
        with self.assertRaises(ValueError):
            self.launch([new_capsule(1, b"another", None)])
        with self.assertRaises(ValueError):
            self.launch([5])

    def test_older_table(self):
        """A table of a later major version leads to that of this one."""
        table = Exchange(1, 3, None, None, None, None, look, current_stream)
        later = exchange(major=2, older=ctypes.addressof(table))
        self.assertIsNotNone(self.launch([self.make(exchange=later)]))

    def test_references(self):
        """Nothing is kept longer than a repeat, and no call keeps anything."""
        watched = (self.q, self.k, Tensor, lib.fail, new)
        gc.collect()
        before = [sys.getrefcount(x) for x in watched]
        repeats = [self.make()]
        for _ in range(100):
            self.launch(repeats)
            self.assertIsNone(self.launch(repeats, self.k, self.k, self.v))
        self.assertEqual(sys.getrefcount(self.made.pop()), 1)
        self.made.clear()
        self.launches.clear()
        self.status = 4
        for _ in range(100):
            with self.assertRaises(lib.Error):
                self.launch(repeats)
        self.made.clear()
        self.launches.clear()
        repeats.clear()
        gc.collect()
        self.assertEqual([sys.getrefcount(x) for x in watched], before)


if __name__ == "__main__":
    main()
