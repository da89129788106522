/* source.h: the text of one .pisa file, and places in it. */
#ifndef PISA_DSL_SOURCE_H
#define PISA_DSL_SOURCE_H

#include <stddef.h>

/* A half-open range of byte offsets [begin, end) into the source text. */
struct span {
  size_t begin, end;
};

#endif
