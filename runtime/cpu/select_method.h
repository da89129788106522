/* select_method.h: a pack's method as the reference of block selection states it. */
#ifndef PISA_CPU_SELECT_METHOD_H
#define PISA_CPU_SELECT_METHOD_H

#include "runtime/cpu/select.h"
#include "runtime/method.h"

/* The selection that a method makes; |flat|: of all visible leaves; |decode|: from the level that
   phase decode starts at. */
struct selection selection_of_method(const struct pisa_method *method, bool flat, bool decode,
                                     double scale);

#endif
