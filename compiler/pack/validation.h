/* validation.h: digests of the code that passed on a GPU. validation_list.c is generated from
   docs/results/validation.json when pisac is built. */
#ifndef PISA_PACK_VALIDATION_H
#define PISA_PACK_VALIDATION_H

extern const char
    *const validated_digests[]; /* sha256, lower-case hex, ascending; the last entry is NULL */
extern const int n_validated_digests;

#endif
