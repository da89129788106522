/* dsl.h: what the rest of the compiler may call. Text in, checked spec out; or text in, text out.

   Nothing here prints or exits: messages are collected in |diag| (see diag.h: diag_print,
   diag_print_json, diag_status). After any call |diag->source| is the file that was read, so that
   later stages can report places in it. A file that cannot be read is diag->world_failed, not an
   error of the spec. */
#ifndef PISA_DSL_H
#define PISA_DSL_H

#include <stdbool.h>
#include <stddef.h>

#include "dsl/diag.h"
#include "dsl/source.h"
#include "dsl/spec.h"

struct arena;
struct text;

/* The checked spec of the file |path|; NULL when it has errors, all of which are in |diag|. */
struct spec *dsl_load(struct arena *arena, const char *path, struct diag *diag);
/* The same for |size| bytes of |text|; |name| stands for the path in messages. */
struct spec *dsl_parse(struct arena *arena, const char *name, const char *text, size_t size,
                       struct diag *diag);

/* Where the tune or vary word |name| of |spec| was written, {0, 0} of one that --set set; NULL when
   there is no such word. */
struct span *dsl_span(struct spec *spec, const char *name);
/* *|out| = |base| with the tune or vary word |name| set to |value| (any legal value, listed or not,
   as written in a spec or in canonical spelling: "0.10", "taylor hybrid", "taylor_hybrid"), checked
   again as a whole, and with |name| taken off its choices. False when that is no legal spec; the
   messages then point at |where| (the candidate in the file of |diag->source|), or, when |where| is
   {0, 0}, into the text "name=value" of a --set option. |name| and |value| NULL-terminated; *|out|
   lives in |arena| and is written only on success. */
bool dsl_apply(struct arena *arena, const struct spec *base, const char *name, const char *value,
               struct span where, struct spec **out, struct diag *diag);

/* The value of the tune or vary word |name| in |spec|, in canonical spelling ("0.1",
   "taylor_hybrid"); NULL for a word that cannot be chosen. */
const char *dsl_value(struct arena *arena, const struct spec *spec, const char *name);

/* `pisac emit --stage tokens|ast`: false when the file has lexical (syntax) errors. */
bool dsl_print_tokens(struct arena *arena, const char *path, struct diag *diag, struct text *out);
bool dsl_print_ast(struct arena *arena, const char *path, struct diag *diag, struct text *out);
/* `pisac fmt`: the file in the one canonical layout, comments kept. False (and nothing in |out|) on
   a syntax error; a spec with other errors can be formatted. */
bool dsl_format(struct arena *arena, const char *path, struct diag *diag, struct text *out);

#endif
