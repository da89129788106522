/* select_method.c: a method in; the selection it makes out. */
#include "runtime/cpu/select_method.h"

struct selection selection_of_method(const struct pisa_method *m, bool flat, bool decode,
                                     double scale) {
  struct selection s = {.flat = flat,
                        .causal = m->mask == PISA_MASK_CAUSAL,
                        .keep = (int)m->keep,
                        .start_nodes = decode ? m->decode_start_nodes : m->start_nodes,
                        .score = (enum select_score)m->score,
                        .reduce = (enum select_reduce)m->reduce,
                        .previous = m->always_previous,
                        .current = m->always_current,
                        .n_always = m->n_always,
                        .scale = scale,
                        .heads = pisa_method_group(m)};
  for (int i = 0; i < m->n_always; i++) {
    bool last = m->always[i].kind == PISA_ALWAYS_LAST;
    s.always[i] = (struct cpu_range){last ? -m->always[i].end : m->always[i].begin,
                                     last ? 0 : m->always[i].end};
  }
  return s;
}
