/* repeat.c: the Python module pisa._repeat. A call of the layouts and options of one before needs
   nothing but addresses: a repeat is what such calls share, and `launch` is a call by one.

   Everything that a repeat does not know (other layouts, a subclass of Tensor, another current
   device) is left to Python by returning None: _torch.py. There is no state that a call changes,
   so calls may come from the midst of others. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "runtime/pisa.h"
#include "runtime/python/dlpack.h"

#define CAPSULE "pisa._repeat.repeat"

enum { Q, K, V, LENGTHS, PYRAMID, OUT, INPUTS };                   /* launch's, in its order */
enum { O, LSE, BLOCKS, WORTH, CSR_OFFSETS, CSR_QUERIES, OUTPUTS }; /* launch's results */
enum { MOST_DIMENSIONS = 4 };

/* All zeros: there is no such tensor. */
typedef struct {
  int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
  dlpack_device device;
  int32_t dimensions;
  dlpack_type type;
} layout;

typedef pisa_status launch_function(const pisa_module *module, const pisa_attention *call,
                                    void *workspace, size_t workspace_bytes, void *stream,
                                    pisa_error *error);

typedef struct {
  const dlpack_exchange *exchange;
  PyObject *tensor; /* the type of all arrays */
  layout inputs[INPUTS];
  launch_function *launch;
  const pisa_module *module;
  pisa_attention call;
  size_t workspace_bytes;
  long device;
  PyObject *current_device;   /* () -> its number */
  PyObject *make, *make_room; /* (shape, stride, type) -> a tensor: outputs, workspace */
  PyObject *outputs[OUTPUTS]; /* what |make| is called with; NULL: not asked for, or given */
  PyObject *room;             /* what |make_room| is called with, or NULL */
  PyObject *fail;             /* (status, message): raises */
} repeat;

/* ---- tensors ---- */

static void *address_of(const dlpack_tensor *tensor) {
  return (char *)tensor->data + tensor->byte_offset;
}

/* false: it is nothing that a repeat takes. No exception is set. */
static bool look(const dlpack_exchange *exchange, PyObject *type, PyObject *object, layout *out,
                 void **address) {
  if (object == Py_None)
    return true;
  dlpack_tensor tensor;
  if ((PyObject *)Py_TYPE(object) != type)
    return false;
  if (exchange->look(object, &tensor)) {
    PyErr_Clear();
    return false;
  }
  if (tensor.dimensions < 1 || tensor.dimensions > MOST_DIMENSIONS)
    return false;
  size_t bytes = (size_t)tensor.dimensions * sizeof(int64_t);
  memcpy(out->shape, tensor.shape, bytes);
  memcpy(out->strides, tensor.strides, bytes);
  out->device = tensor.device;
  out->dimensions = tensor.dimensions;
  out->type = tensor.type;
  *address = address_of(&tensor);
  return true;
}

static bool look_at_all(const dlpack_exchange *exchange, PyObject *type, PyObject *const *objects,
                        layout layouts[INPUTS], void *addresses[INPUTS]) {
  memset(layouts, 0, INPUTS * sizeof *layouts);
  memset(addresses, 0, INPUTS * sizeof *addresses);
  for (int i = 0; i < INPUTS; i++)
    if (!look(exchange, type, objects[i], &layouts[i], &addresses[i]))
      return false;
  return true;
}

/* A new tensor and its address; NULL with an exception set. */
static PyObject *make(const repeat *r, PyObject *maker, PyObject *arguments, void **address) {
  PyObject *made = PyObject_CallObject(maker, arguments);
  if (!made)
    return NULL;
  dlpack_tensor tensor;
  if (r->exchange->look(made, &tensor)) {
    Py_DECREF(made);
    return NULL;
  }
  *address = address_of(&tensor);
  return made;
}

/* ---- launch ---- */

/* The pointer that each is in a pisa_attention. */
static const size_t input_fields[INPUTS] = {
    [Q] = offsetof(pisa_attention, q.data),        [K] = offsetof(pisa_attention, k.data),
    [V] = offsetof(pisa_attention, v.data),        [LENGTHS] = offsetof(pisa_attention, k_lengths),
    [PYRAMID] = offsetof(pisa_attention, pyramid), [OUT] = offsetof(pisa_attention, o.data),
};
static const size_t output_fields[OUTPUTS] = {
    [O] = offsetof(pisa_attention, o.data),
    [LSE] = offsetof(pisa_attention, lse),
    [BLOCKS] = offsetof(pisa_attention, blocks),
    [WORTH] = offsetof(pisa_attention, worth),
    [CSR_OFFSETS] = offsetof(pisa_attention, csr_offsets),
    [CSR_QUERIES] = offsetof(pisa_attention, csr_queries),
};

static void place(pisa_attention *call, size_t field, void *address) {
  memcpy((char *)call + field, &address, sizeof address);
}

/* A tuple of |objects|, which it takes over; NULL with an exception set. */
static PyObject *tuple_of(PyObject *objects[OUTPUTS]) {
  PyObject *tuple = PyTuple_New(OUTPUTS);
  for (int i = 0; i < OUTPUTS; i++) {
    if (tuple)
      PyTuple_SetItem(tuple, i, objects[i]);
    else
      Py_DECREF(objects[i]);
  }
  return tuple;
}

/* The tuple of outputs, with None for what is not made; a given |out| is the first. */
static PyObject *make_outputs(const repeat *r, PyObject *out, pisa_attention *call) {
  PyObject *outputs[OUTPUTS];
  for (int i = 0; i < OUTPUTS; i++) {
    void *address = NULL;
    if (r->outputs[i]) {
      outputs[i] = make(r, r->make, r->outputs[i], &address);
      place(call, output_fields[i], address);
    } else {
      outputs[i] = i == O ? out : Py_None;
      Py_INCREF(outputs[i]);
    }
    if (!outputs[i]) {
      while (i-- > 0)
        Py_DECREF(outputs[i]);
      return NULL;
    }
  }
  return tuple_of(outputs);
}

/* false: with an exception set. */
static bool enqueue(const repeat *r, const pisa_attention *call) {
  void *stream = NULL, *workspace = NULL;
  dlpack_device device = r->inputs[Q].device;
  if (r->exchange->current_stream(device.type, device.number, &stream))
    return false;
  PyObject *room = NULL;
  if (r->room && !(room = make(r, r->make_room, r->room, &workspace)))
    return false;
  pisa_error error;
  pisa_status status = r->launch(r->module, call, workspace, r->workspace_bytes, stream, &error);
  /* To the caching allocator, which gives it to what comes later on this stream. */
  Py_XDECREF(room);
  if (status == PISA_OK)
    return true;
  PyObject *nothing = PyObject_CallFunction(r->fail, "iy", (int)status, error.message);
  Py_XDECREF(nothing);
  return false;
}

/* 1, 0, or -1 with an exception set. */
static int is_current(const repeat *r) {
  PyObject *number = PyObject_CallObject(r->current_device, NULL);
  if (!number)
    return -1;
  long current = PyLong_AsLong(number);
  Py_DECREF(number);
  if (current == -1 && PyErr_Occurred())
    return -1;
  return current == r->device;
}

static PyObject *perform(const repeat *r, PyObject *out, void *const addresses[INPUTS]) {
  pisa_attention call = r->call;
  for (int i = 0; i < INPUTS; i++)
    place(&call, input_fields[i], addresses[i]);
  PyObject *outputs = make_outputs(r, out, &call);
  if (outputs && !enqueue(r, &call))
    Py_CLEAR(outputs);
  return outputs;
}

/* Of the inputs that |objects| are. false: no repeat is of such, or with an exception set. */
static bool look_by_last(PyObject *repeats, PyObject *const *objects, layout layouts[INPUTS],
                         void *addresses[INPUTS]) {
  Py_ssize_t n = PyList_Size(repeats);
  PyObject *capsule = n > 0 ? PyList_GetItem(repeats, n - 1) : NULL;
  const repeat *r = capsule ? PyCapsule_GetPointer(capsule, CAPSULE) : NULL;
  if (!r)
    return false;
  Py_INCREF(capsule); /* whatever looking runs */
  bool seen = look_at_all(r->exchange, r->tensor, objects, layouts, addresses);
  Py_DECREF(capsule);
  return seen;
}

/* The newest repeat of such layouts; NULL: none, or with an exception set. Borrowed; |addresses|
   are filled. */
static PyObject *find(PyObject *repeats, PyObject *const *objects, void *addresses[INPUTS]) {
  layout layouts[INPUTS];
  if (!look_by_last(repeats, objects, layouts, addresses))
    return NULL;
  for (Py_ssize_t i = PyList_Size(repeats) - 1; i >= 0; i--) {
    PyObject *capsule = PyList_GetItem(repeats, i);
    const repeat *r = PyCapsule_GetPointer(capsule, CAPSULE);
    if (!r)
      return NULL;
    if (!memcmp(layouts, r->inputs, sizeof layouts))
      return capsule;
  }
  return NULL;
}

static const char LAUNCH_DOC[] =
    "launch(repeats, q, k, v, k_lengths, memory, out): the call by the one of the list |repeats| "
    "that has these layouts.\n\nReturns (o, lse, blocks, worth, csr_offsets, csr_queries), None "
    "for what such calls do not make; or None: no repeat is of such a call, or its device is not "
    "the "
    "current one.";

static PyObject *launch(PyObject *module, PyObject *const *objects, Py_ssize_t n) {
  (void)module;
  if (n != 1 + INPUTS || !PyList_Check(objects[0]))
    return PyErr_Format(PyExc_TypeError, "launch takes a list and %d arrays", INPUTS);
  void *addresses[INPUTS];
  PyObject *capsule = find(objects[0], objects + 1, addresses), *found = NULL;
  if (!capsule) {
    if (PyErr_Occurred())
      return NULL;
    Py_RETURN_NONE;
  }
  Py_INCREF(capsule); /* making a tensor may run anything, and that may empty the list */
  const repeat *r = PyCapsule_GetPointer(capsule, CAPSULE);
  int current = is_current(r);
  if (current > 0)
    found = perform(r, objects[1 + OUT], addresses);
  Py_DECREF(capsule);
  if (current == 0)
    Py_RETURN_NONE;
  return found;
}

/* ---- make ---- */

static void free_repeat(repeat *r) {
  for (int i = 0; i < OUTPUTS; i++)
    Py_XDECREF(r->outputs[i]);
  Py_XDECREF(r->tensor);
  Py_XDECREF(r->current_device);
  Py_XDECREF(r->make);
  Py_XDECREF(r->make_room);
  Py_XDECREF(r->room);
  Py_XDECREF(r->fail);
  PyMem_Free(r);
}

static void destroy(PyObject *capsule) {
  free_repeat(PyCapsule_GetPointer(capsule, CAPSULE));
}

/* The table of this version; NULL: there is none. No exception is set. */
static const dlpack_exchange *exchange_of(PyObject *capsule) {
  static const char name[] = "dlpack_exchange_api";
  if (!PyCapsule_IsValid(capsule, name))
    return NULL;
  const dlpack_header *header = PyCapsule_GetPointer(capsule, name);
  while (header && header->major > DLPACK_MAJOR)
    header = header->older;
  const dlpack_exchange *exchange = (const dlpack_exchange *)header;
  if (!exchange || exchange->header.major != DLPACK_MAJOR || !exchange->look)
    return NULL;
  return exchange;
}

static PyObject *kept(PyObject *object) {
  if (object == Py_None)
    return NULL;
  Py_INCREF(object);
  return object;
}

/* false: with an exception set. */
static bool read_outputs(repeat *r, PyObject *outputs) {
  if (PyTuple_Size(outputs) != OUTPUTS) {
    PyErr_Format(PyExc_TypeError, "there are %d outputs", OUTPUTS);
    return false;
  }
  for (int i = 0; i < OUTPUTS; i++)
    r->outputs[i] = kept(PyTuple_GetItem(outputs, i));
  return true;
}

/* Those of a call long gone: a call sets the pointers of what it has. */
static void forget_pointers(pisa_attention *call) {
  for (int i = 0; i < INPUTS; i++)
    place(call, input_fields[i], NULL);
  for (int i = 0; i < OUTPUTS; i++)
    place(call, output_fields[i], NULL);
  call->lists = call->q_starts = call->k_starts = call->pages = NULL;
}

/* Of a caller who knows fewer fields the others are zero (pisa.h). false: with an exception set. */
static bool read_call(repeat *r, PyObject *request) {
  char *bytes;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(request, &bytes, &size))
    return false;
  if ((size_t)size > sizeof r->call) {
    PyErr_Format(PyExc_ValueError, "a pisa_attention has %zu bytes, not %zd", sizeof r->call, size);
    return false;
  }
  memcpy(&r->call, bytes, (size_t)size);
  forget_pointers(&r->call);
  return true;
}

/* Of the tensors of a call like those to come. false: none may be repeated, or an exception is set.
 */
static bool read_inputs(repeat *r, PyObject *inputs) {
  PyObject *objects[INPUTS];
  void *addresses[INPUTS];
  if (PyTuple_Size(inputs) != INPUTS) {
    PyErr_Format(PyExc_TypeError, "there are %d inputs", INPUTS);
    return false;
  }
  for (int i = 0; i < INPUTS; i++)
    objects[i] = PyTuple_GetItem(inputs, i);
  return look_at_all(r->exchange, r->tensor, objects, r->inputs, addresses);
}

static const char MAKE_DOC[] =
    "make(exchange, tensor, launch, module, request, workspace_bytes, device, current_device, "
    "(make, outputs), (make_room, room), fail, inputs): what calls like this one share, or None "
    "where such calls cannot be repeated.\n\n"
    "exchange: __dlpack_c_exchange_api__ of the type |tensor|\n"
    "launch, module: addresses of pisa_launch and of a pisa_module\n"
    "request: the bytes of a pisa_attention, whose pointers do not matter\n"
    "device, current_device: where the tensors are; a function that tells the current one\n"
    "outputs: for each of launch's results what make(*...) is called with, or None; room: the same "
    "for the workspace\n"
    "fail: f(status, message), raises\n"
    "inputs: (q, k, v, k_lengths, memory, out) of one call, None where it has none";

/* What the arguments say; the objects of |r| are its own afterwards. false: an exception is set. */
static bool read_arguments(repeat *r, PyObject *arguments, PyObject **exchange, PyObject **inputs) {
  PyObject *outputs, *request, *room;
  unsigned long long launch_address, module_address, workspace_bytes;
  if (!PyArg_ParseTuple(arguments, "OOKKSKlO(OO!)(OO)OO!:make", exchange, &r->tensor,
                        &launch_address, &module_address, &request, &workspace_bytes, &r->device,
                        &r->current_device, &r->make, &PyTuple_Type, &outputs, &r->make_room, &room,
                        &r->fail, &PyTuple_Type, inputs)) {
    r->tensor = r->current_device = r->make = r->make_room = r->fail = NULL;
    return false;
  }
  PyObject *objects[] = {r->tensor, r->current_device, r->make, r->make_room, r->fail};
  for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
    Py_INCREF(objects[i]);
  r->room = kept(room);
  uintptr_t address = (uintptr_t)launch_address;
  memcpy(&r->launch, &address, sizeof r->launch); /* ISO C has no cast from object to function */
  r->module = (const pisa_module *)(uintptr_t)module_address;
  r->workspace_bytes = (size_t)workspace_bytes;
  return read_outputs(r, outputs) && read_call(r, request);
}

static PyObject *make_repeat(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *exchange, *inputs, *made = NULL;
  repeat *r = PyMem_Calloc(1, sizeof *r);
  if (!r)
    return PyErr_NoMemory();
  if (read_arguments(r, arguments, &exchange, &inputs)) {
    r->exchange = exchange_of(exchange);
    if (r->exchange && read_inputs(r, inputs))
      made = PyCapsule_New(r, CAPSULE, destroy);
  }
  if (made)
    return made;
  free_repeat(r);
  if (PyErr_Occurred())
    return NULL;
  Py_RETURN_NONE;
}

/* ---- module ---- */

static PyMethodDef functions[] = {
    {"make", make_repeat, METH_VARARGS, MAKE_DOC},
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL, LAUNCH_DOC},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_repeat",
    .m_doc = "Calls like one before, without Python's way to a launch (repeat.c).",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__repeat(void);

PyMODINIT_FUNC PyInit__repeat(void) {
  return PyModule_Create(&definition);
}
