/* open_context.c: makes the primary context of device 0 current, as an application has it. */
#include "runtime/device.h"

pisa_status open_context(void);

pisa_status open_context(void) {
  static struct pisa_device device;
  return pisa_device_open(0, &device, NULL);
}
