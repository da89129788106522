/* verify_tensor.c: layout and sizes in, a host image of a device buffer out.
   Every image begins and ends with a guard zone and, where the layout has gaps, keeps them: a
   kernel that reads there gets NaN, one that writes there is found out. */
#include <stdlib.h>
#include <string.h>

#include "runtime/tool/verify.h"

enum { GUARD = 4096 }; /* elements; a multiple of 8, so that the data stays 16-byte aligned */

/* Elements between two heads of VERIFY_FAR: offsets of the second head do not fit 32 bits, in
 * elements. */
#define FAR_STRIDE (((int64_t)1 << 31) + 4096)

const char *const verify_layout_names[] = {"bhnd", "bnhd", "gapped", "far", "shared"};

/* Strides b, h, n of a layout, in elements. */
static void layout_strides(enum verify_layout layout, int64_t heads, int64_t n, int64_t d,
                           int64_t *stride) {
  int64_t row = layout == VERIFY_BNHD ? heads * d : layout == VERIFY_GAPPED ? 3 * heads * d : d;
  bool tokens_outside = layout == VERIFY_BNHD || layout == VERIFY_GAPPED;
  stride[0] = tokens_outside ? n * row : heads * n * d;
  stride[1] = tokens_outside ? d : n * d;
  if (layout == VERIFY_SHARED) /* every head of every batch is the same array */
    stride[0] = stride[1] = 0;
  stride[2] = row;
  stride[3] = 1;
}

/* Of many heads only the later ones lie that far: all must fit a device. */
static void far_strides(int64_t heads, int64_t *stride) {
  enum { MOST = 8 };
  stride[1] = heads > MOST ? MOST * FAR_STRIDE / heads / 8 * 8 : FAR_STRIDE;
  stride[0] = heads * stride[1];
}

static int64_t extent(const struct verify_tensor *t, const int64_t *stride) {
  return (t->batch - 1) * stride[0] + (t->heads - 1) * stride[1] + (t->n - 1) * stride[2] + t->d;
}

bool verify_tensor_init(struct verify_tensor *t, enum verify_layout layout, int64_t batch,
                        int64_t heads, int64_t n, int64_t d) {
  *t = (struct verify_tensor){.batch = batch, .heads = heads, .n = n, .d = d, .layout = layout};
  layout_strides(layout, heads, n, d, t->stride);
  memcpy(t->device_stride, t->stride, sizeof t->stride);
  if (layout == VERIFY_FAR)
    far_strides(heads, t->device_stride);
  t->first = GUARD;
  t->elements = extent(t, t->stride) + 2 * GUARD;
  t->device_elements = extent(t, t->device_stride) + 2 * GUARD;
  t->image = malloc((size_t)t->elements * sizeof *t->image);
  if (!t->image)
    return false;
  memset(t->image, 0xff, (size_t)t->elements * sizeof *t->image);
  return true;
}

void verify_tensor_free(struct verify_tensor *t) {
  free(t->image);
  t->image = NULL;
}

uint16_t *verify_row(const struct verify_tensor *t, int64_t b, int64_t h, int64_t n) {
  return t->image + t->first + b * t->stride[0] + h * t->stride[1] + n * t->stride[2];
}

pisa_tensor verify_tensor_host(const struct verify_tensor *t) {
  pisa_tensor view = {.data = t->image + t->first};
  memcpy(view.stride, t->stride, sizeof view.stride);
  return view;
}

pisa_tensor verify_tensor_device(const struct verify_tensor *t, void *buffer) {
  pisa_tensor view = {.data = (uint8_t *)buffer + (size_t)t->first * sizeof *t->image};
  memcpy(view.stride, t->device_stride, sizeof view.stride);
  return view;
}
