/* verify_select_memory.c: device memory between guard zones: in goes a size, out comes what kernels
   left in it, and whether they left the guards alone. */
#include <stdlib.h>

#include "runtime/tool/verify_select.h"

enum { GUARD = 4096, POISON = 0xff };

pisa_status select_buffer_open(const struct pisa_device *device, size_t bytes,
                               struct select_buffer *out, pisa_error *error) {
  *out = (struct select_buffer){.bytes = bytes};
  return bytes ? pisa_device_alloc(device, bytes + 2 * GUARD, &out->memory, error) : PISA_OK;
}

void select_buffer_close(const struct pisa_device *device, struct select_buffer *buffer) {
  pisa_device_free(device, buffer->memory);
  *buffer = (struct select_buffer){0};
}

void *select_buffer_inside(const struct select_buffer *buffer) {
  return buffer->memory ? (uint8_t *)buffer->memory + GUARD : NULL;
}

pisa_status select_buffer_poison(const struct pisa_device *device,
                                 const struct select_buffer *buffer, bool whole,
                                 pisa_error *error) {
  uint8_t *memory = buffer->memory;
  if (!memory)
    return PISA_OK;
  if (whole)
    return pisa_device_fill(device, memory, POISON, buffer->bytes + 2 * GUARD, error);
  pisa_status status = pisa_device_fill(device, memory, POISON, GUARD, error);
  return status ? status
                : pisa_device_fill(device, memory + GUARD + buffer->bytes, POISON, GUARD, error);
}

bool select_all_poison(const void *bytes, size_t n) {
  const uint8_t *byte = bytes;
  for (size_t i = 0; i < n; i++)
    if (byte[i] != POISON)
      return false;
  return true;
}

static pisa_status check_guards(const struct pisa_device *device,
                                const struct select_buffer *buffer, const char *name,
                                struct verify_result *result, pisa_error *error) {
  uint8_t guard[GUARD];
  const uint8_t *memory = buffer->memory;
  pisa_status status = pisa_device_download(device, guard, memory, GUARD, error);
  if (!status && !select_all_poison(guard, GUARD))
    verify_fail(result, "%s: something was written before it", name);
  if (!status)
    status = pisa_device_download(device, guard, memory + GUARD + buffer->bytes, GUARD, error);
  if (!status && !select_all_poison(guard, GUARD))
    verify_fail(result, "%s: something was written behind it", name);
  return status;
}

pisa_status select_buffer_fetch(const struct pisa_device *device,
                                const struct select_buffer *buffer, const char *name, size_t offset,
                                size_t bytes, void **out, struct verify_result *result,
                                pisa_error *error) {
  *out = malloc(bytes ? bytes : 1);
  if (!*out)
    return pisa_fail(error, PISA_OUT_OF_MEMORY, "not enough host memory for %s", name);
  if (!buffer->memory)
    return PISA_OK;
  pisa_status status = check_guards(device, buffer, name, result, error);
  const uint8_t *inside = select_buffer_inside(buffer);
  return status || !bytes ? status
                          : pisa_device_download(device, *out, inside + offset, bytes, error);
}
