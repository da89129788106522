/* fake_kinds.h: what the fake driver must know to read a launch's parameters. */
#ifndef PISA_TESTS_RUNTIME_FAKE_KINDS_H
#define PISA_TESTS_RUNTIME_FAKE_KINDS_H

enum fake_kind { KIND_MAP, KIND_PTR, KIND_I32, KIND_I64, KIND_F32 };

/* The kinds of all |n| parameters of kernel |entry|. */
const enum fake_kind *fake_kinds_of(const char *entry, int *n);

#endif
