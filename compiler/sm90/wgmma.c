/* wgmma as inline asm: NVVM's op has no register A, no missing accumulator and no tied wait; see
 * wgmma.h. */
#include "compiler/sm90/wgmma.h"

#include <assert.h>

#include "dsl/text.h"

enum { MAX_OPERANDS = 2 * FRAG_MAX + 2 * FRAG_A_MAX + 8 };

void wgmma_fence(struct ir *k) {
  OP0(k, "nvvm.wgmma.fence.aligned", NO_TYPE, "");
}

void wgmma_commit(struct ir *k) {
  OP0(k, "nvvm.wgmma.commit.group.sync.aligned", NO_TYPE, "");
}

static void repeat(struct text *out, int n, const char *s) {
  for (int i = 0; i < n; i++) {
    text_printf(out, "%s%s", i ? "," : "", s);
  }
}

static void numbered(struct text *out, int first, int n, const char *sigil) {
  for (int i = 0; i < n; i++) {
    text_printf(out, "%s%s%d", i ? "," : "", sigil, first + i);
  }
}

/* What one wgmma reads besides its accumulator. */
struct sources {
  int n_a; /* 1: descriptor, 4: registers */
  val a[4], b;
  bool a_mn_major, b_mn_major;
};

/* "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma... {$0,..},A,B,p,1,1[,transpose a],transpose b;}" */
static void product_text(struct text *out, const char *type_name, int columns, bool accumulate,
                         const struct sources *s) {
  int n = columns / 2;
  text_printf(out,
              "{.reg .pred p; setp.ne.b32 p, %d, 0; "
              "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s {",
              accumulate, columns, type_name, type_name);
  numbered(out, 0, n, "$");
  text_puts(out, s->n_a == 4 ? "},{" : "},");
  numbered(out, n, s->n_a, "$");
  text_printf(out, "%s,$%d,p,1,1,", s->n_a == 4 ? "}" : "", n + s->n_a);
  if (s->n_a == 1) {
    text_printf(out, "%d,", s->a_mn_major);
  }
  text_printf(out, "%d;}", s->b_mn_major);
}

static void product_constraints(struct text *out, int columns, bool accumulate,
                                const struct sources *s) {
  repeat(out, columns / 2, "=f");
  text_puts(out, s->n_a == 4 ? ",r,r,r,r,l" : ",l,l");
  if (accumulate) {
    text_putc(out, ',');
    numbered(out, 0, columns / 2, "");
  }
}

/* |acc| values in and out: a chain of products stays in plain values, stored to the fragment once.
 */
static void product(struct ir *k, int columns, val *acc, bool accumulate, const struct sources *s) {
  struct text text, constraints;
  text_init(&text);
  text_init(&constraints);
  product_text(&text, k->half_name, columns, accumulate, s);
  product_constraints(&constraints, columns, accumulate, s);
  val operands[MAX_OPERANDS];
  int n = 0;
  for (int i = 0; i < s->n_a; i++) {
    operands[n++] = s->a[i];
  }
  operands[n++] = s->b;
  for (int i = 0; accumulate && i < columns / 2; i++) {
    operands[n++] = acc[i];
  }
  ir_asm(k, text.data, constraints.data, k->f32, columns / 2, acc, n, operands);
  text_fini(&text);
  text_fini(&constraints);
}

static void load_frag(struct ir *k, const struct frag *f, val *x) {
  for (int i = 0; i < f->columns / 2; i++) {
    x[i] = get(k, f->r[i]);
  }
}

static void store_frag(struct ir *k, const struct frag *f, const val *x) {
  for (int i = 0; i < f->columns / 2; i++) {
    set(k, f->r[i], x[i]);
  }
}

static void chain(struct ir *k, const struct frag *acc, enum wgmma_start start,
                  const struct operand *a, const struct frag_a *a_registers, int a_step,
                  const struct operand *b, int steps) {
  val x[FRAG_MAX];
  if (start == WGMMA_ACCUMULATE) {
    load_frag(k, acc, x);
  }
  for (int step = 0; step < steps; step++) {
    struct sources s = {.n_a = a ? 1 : 4,
                        .b = operand_step(k, b, step),
                        .a_mn_major = a && a->mn_major,
                        .b_mn_major = b->mn_major};
    if (a) {
      s.a[0] = operand_step(k, a, step);
    } else {
      for (int z = 0; z < 4; z++) {
        s.a[z] = get(k, a_registers->r[4 * (a_step + step) + z]);
      }
    }
    product(k, acc->columns, x, start == WGMMA_ACCUMULATE || step > 0, &s);
  }
  store_frag(k, acc, x);
}

void wgmma_ss(struct ir *k, const struct frag *acc, enum wgmma_start start, const struct operand *a,
              const struct operand *b, int steps) {
  chain(k, acc, start, a, NULL, 0, b, steps);
}

void wgmma_rs(struct ir *k, const struct frag *acc, enum wgmma_start start, const struct frag_a *a,
              int a_step, const struct operand *b, int steps) {
  assert((a_step + steps) * K_STEP <= a->columns);
  chain(k, acc, start, NULL, a, a_step, b, steps);
}

void wgmma_wait(struct ir *k, int pending, const struct frag *acc, int n_kept,
                const struct frag_a *const *kept) {
  struct text text, constraints;
  text_init(&text);
  text_init(&constraints);
  text_printf(&text, "wgmma.wait_group.sync.aligned %d;", pending);
  int n_acc = acc ? acc->columns / 2 : 0, n = n_acc;
  val operands[MAX_OPERANDS], results[FRAG_MAX];
  if (acc) {
    load_frag(k, acc, operands);
    repeat(&constraints, n_acc, "=f");
    text_putc(&constraints, ',');
    numbered(&constraints, 0, n_acc, "");
    text_putc(&constraints, ',');
  }
  for (int a = 0; a < n_kept; a++) {
    for (int i = 0; i < kept[a]->columns / 4; i++) {
      operands[n++] = get(k, kept[a]->r[i]);
      text_puts(&constraints, "r,");
    }
  }
  text_puts(&constraints, "~{memory}");
  ir_asm(k, text.data, constraints.data, k->f32, n_acc, results, n, operands);
  if (acc) {
    store_frag(k, acc, results);
  }
  text_fini(&text);
  text_fini(&constraints);
}
