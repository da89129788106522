/* select_write.c: the means of one sequence and key head in; out the rows of a caller's pyramid
   that a GPU would have written (runtime/pyramid.def). */
#include <assert.h>

#include "runtime/cpu/convert.h"
#include "runtime/cpu/select_job.h"
#include "runtime/size.h"
#include "runtime/workspace.h"

/* M_l of a sequence with |room| keys. */
static int64_t level_room(const struct pyramid *p, int64_t room, int level) {
  return pisa_ceil_div(room, pyramid_size(p, level));
}

/* First row of the means of the sequence, for its key head. */
static int64_t node_base(const struct select_job *job, const struct select_sequence *s,
                         int64_t kv_head) {
  const struct pisa_shape *shape = job->shape;
  int64_t base = 4 * (s->k_begin / (2 * job->method->key)) + 128 * s->index;
  return kv_head * pisa_node_rows(job->method, shape->batch, shape->keys) + base;
}

/* Above the root of the keys that are there a node has the same tokens as the root. */
static void write_level(const struct pyramid *p, int level, bool completed, int64_t row,
                        uint16_t *means) {
  const int stored = (int)pisa_min(level, pyramid_root(p));
  for (int64_t node = 0; node < pyramid_nodes(p, level); node++) {
    if (completed && pyramid_count(p, level, node) < pyramid_size(p, level))
      continue;
    const double *mean = pyramid_mean(p, stored, node);
    for (int d = 0; d < p->head_dim; d++)
      means[pisa_mean_place(row + node, d, p->head_dim)] = cpu_narrow(p->type, (float)mean[d]);
  }
}

/* The sum of the keys [begin, end), float. */
static void write_sum(const struct pyramid *p, int64_t begin, int64_t end, float *out) {
  for (int d = 0; d < p->head_dim; d++) {
    double sum = 0;
    for (int64_t t = begin; t < end; t++)
      sum += pyramid_mean(p, 0, t)[d];
    out[d] = (float)sum;
  }
}

/* open [PISA_OPEN_LEVELS, D]: of the node of each level that grows the keys from its first token to
   the last that completes a child. Levels far above the root have no complete child. */
static void write_open(const struct pyramid *p, float *out) {
  int64_t child = 1;
  for (int l = 0; l < PISA_OPEN_LEVELS; l++) {
    int64_t size = child > p->tokens ? child : child * pyramid_children(p, l + 1);
    write_sum(p, p->tokens / size * size, p->tokens / child * child,
              out + (int64_t)l * p->head_dim);
    child = size;
  }
}

void select_pyramid_write(const struct select_job *job, const struct select_sequence *s,
                          int64_t kv_head, const struct pyramid *p, bool completed) {
  const int64_t head = s->index * job->shape->kv_heads + kv_head;
  char *pyramid = job->call->pyramid;
  uint16_t *means = (uint16_t *)(void *)pyramid;
  float *open = (float *)(void *)(pyramid + pisa_open_offset(job->method, job->shape));
  int64_t row = node_base(job, s, kv_head);
  for (int level = 1; s->room > 0; level++) {
    int64_t nodes = level_room(p, s->room, level);
    assert(pyramid_nodes(p, level) <= nodes);
    write_level(p, level, completed, row, means);
    row += 4 * pisa_ceil_div(nodes, 4);
    if (nodes == 1)
      break;
  }
  write_open(p, open + head * PISA_OPEN_LEVELS * p->head_dim);
}
