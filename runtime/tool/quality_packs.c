/* quality_packs.c: paths of packs in; the packs, checked to be comparable, out. */
#include <string.h>

#include "runtime/tool/quality.h"

static pisa_status check_method(const struct pisa_method *m, pisa_error *error) {
  if (m->mask != PISA_MASK_NONE)
    return pisa_fail(error, PISA_UNSUPPORTED, "quality has no causal mask yet");
  if (m->query % QUALITY_GRANULE || m->key % QUALITY_GRANULE)
    return pisa_fail(error, PISA_UNSUPPORTED,
                     "quality needs blocks of a multiple of %d, not query %d and key %d",
                     QUALITY_GRANULE, m->query, m->key);
  return PISA_OK;
}

static pisa_status open_pack(const struct quality_options *o, const char *path,
                             struct quality_pack *out, pisa_error *error) {
  pisa_status status = pisa_pack_open(path, &out->pack, error);
  if (status)
    return status; /* the message names the path */
  status =
      pisa_pack_find_variant(out->pack, o->settings.items, o->settings.n, &out->variant, error);
  if (!status)
    status = pisa_pack_variant(out->pack, out->variant, &out->chosen, error);
  if (!status)
    status = check_method(&out->chosen->method, error);
  return status ? pisa_add_context(error, status, "%s", path) : PISA_OK;
}

static const char *type_name(pisa_type type) {
  return type == PISA_BF16 ? "bf16" : "fp16";
}

/* Errors of packs can be compared when all see the same numbers. */
static pisa_status check_alike(const struct quality_packs *packs, const char *first,
                               const char *path, const struct quality_pack *pack,
                               pisa_error *error) {
  const struct pisa_method *m = &pack->chosen->method;
  int group = pisa_method_group(m);
  if (m->head_dim == packs->head_dim && m->type == packs->type && group == packs->group)
    return PISA_OK;
  return pisa_fail(error, PISA_INVALID_ARGUMENT,
                   "%s is for head_dim %d, %s, %d query heads per key head, but %s for head_dim "
                   "%d, %s, %d: compare packs of one shape",
                   path, m->head_dim, type_name(m->type), group, first, packs->head_dim,
                   type_name(packs->type), packs->group);
}

static const char *name_of(const struct quality_pack *pack) {
  return pack->pack->manifest.name;
}

static void add_labels(struct quality_packs *packs) {
  for (int i = 0; i < packs->n; i++) {
    struct quality_pack *pack = &packs->items[i];
    bool unique = true;
    for (int j = 0; j < packs->n; j++)
      unique = unique && (i == j || strcmp(name_of(pack), name_of(&packs->items[j])) != 0);
    const char *choices = unique ? "" : pack->chosen->choices;
    snprintf(pack->label, sizeof pack->label, "%s%s%s", name_of(pack), *choices ? " " : "",
             choices);
  }
}

pisa_status quality_packs_open(const struct quality_options *o, struct quality_packs *out,
                               pisa_error *error) {
  for (int i = 0; i < o->packs.n; i++) {
    struct quality_pack *pack = &out->items[out->n++];
    pisa_status status = open_pack(o, o->packs.items[i], pack, error);
    if (status)
      return status;
    const struct pisa_method *m = &pack->chosen->method;
    if (i == 0) {
      out->head_dim = m->head_dim;
      out->type = m->type;
      out->group = pisa_method_group(m);
    }
    status = check_alike(out, o->packs.items[0], o->packs.items[i], pack, error);
    if (status)
      return status;
  }
  add_labels(out);
  return PISA_OK;
}

void quality_packs_close(struct quality_packs *packs) {
  for (int i = 0; i < packs->n; i++)
    pisa_pack_close(packs->items[i].pack);
}
