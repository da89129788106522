/* ir.h: a small builder over the MLIR C API (llvm, nvvm, arith, scf dialects), in two visible
   times.

   Emission time is plain C: `for` unrolls, `if` specialises, functions inline. Run time is in
   capitals: FOR, WHILE, IF, ELSE open a scope of the generated program. A run-time value is a
   `val`; a mutable run-time variable is a `struct var` (an alloca in the entry block which LLVM's
   SROA turns into a register: one scalar each, never indexed at run time, address never taken).
   Arithmetic picks the integer or float op by the operands' type; integers are signed unless the
   name says otherwise. Misuse is a bug of ours and aborts with the op's name. */
#ifndef PISA_IR_H
#define PISA_IR_H

#include <stdbool.h>
#include <stdint.h>

#include "mlir-c/IR.h"

typedef MlirValue val;
typedef MlirType type;

enum { IR_MAX_ARGS = 48 };

struct ir_arg;

struct ir {
  MlirContext context;
  MlirModule module;
  MlirLocation location; /* of the next op; scopes set it to the emitting C line */
  MlirBlock block;       /* new ops are appended here */
  type i1, i32, i64, f32, f32x2, i32x4, ptr, global, shared;
  type half, half_x2;    /* 16-bit type of the kernel's arrays: bf16 or f16 */
  const char *half_name; /* as PTX spells it */

  /* of the kernel being emitted */
  const struct ir_arg *args;
  int n_args;
  MlirRegion body;
  MlirBlock entry;
  MlirOperation one; /* constant 1 in the entry block: the size of every alloca, and where they are
                        inserted */
  MlirOperation last_if;
  val arg[IR_MAX_ARGS];
  val smem; /* dynamic shared memory: shared pointer, 1024-byte aligned */
};

void ir_init(struct ir *k, MlirContext context, MlirModule module);
/* The 16-bit type of the kernels emitted from here on; bf16 until set. */
void ir_set_half(struct ir *k, bool is_f16);
/* Location of the ops that follow; FOR, IF and the tile layer's scopes call it. */
void ir_here(struct ir *k, const char *file, int line);

/* ---- any op ---- */

/* Appends op |name| with |attributes| (the inside of a dictionary, MLIR syntax, "" for none).
   Result 0, or a null val when |result| is a null type. */
val ir_op(struct ir *k, const char *name, type result, const char *attributes, int n,
          const val *operands);
/* One inline-asm statement with side effects. |n_results| values of type |result| come back in
 * |results|. */
void ir_asm(struct ir *k, const char *text, const char *constraints, type result, int n_results,
            val *results, int n, const val *operands);
type ir_type(struct ir *k, const char *text);
bool is_null(val v);

#define NO_TYPE ((type){0})
#define IR_COUNT(...) ((int)(sizeof((val[]){__VA_ARGS__}) / sizeof(val)))
#define OP(k, name, result, attributes, ...)                                                       \
  ir_op(k, name, result, attributes, IR_COUNT(__VA_ARGS__), (const val[]){__VA_ARGS__})
#define OP0(k, name, result, attributes) ir_op(k, name, result, attributes, 0, NULL)

/* ---- values ---- */

val i32(struct ir *k, int64_t v);
val i64(struct ir *k, int64_t v);
val f32(struct ir *k, double v); /* also INFINITY and -INFINITY */

val add(struct ir *k, val a, val b);
val sub(struct ir *k, val a, val b);
val mul(struct ir *k, val a, val b);
val add_const(struct ir *k, val a, int64_t c); /* a + c; integers */
val mul_const(struct ir *k, val a, int64_t c);
val udiv(struct ir *k, val a, val b); /* unsigned */
val umin(struct ir *k, val a, val b);
val umax(struct ir *k, val a, val b);
val smin(struct ir *k, val a, val b);
val smax(struct ir *k, val a, val b);
val bit_and(struct ir *k, val a, val b);
val bit_or(struct ir *k, val a, val b);
val bit_xor(struct ir *k, val a, val b);
val bit_not(struct ir *k, val a);
val shift_left(struct ir *k, val a, val b);
val shift_right(struct ir *k, val a, val b); /* logical */
val shift_right_signed(struct ir *k, val a, val b);
val negate(struct ir *k, val a);                        /* float */
val fused(struct ir *k, val a, val b, val c);           /* a * b + c, one rounding */
val fused_saturated(struct ir *k, val a, val b, val c); /* the same, clamped to [0, 1]; nan: 0 */
val fused_down(struct ir *k, val a, val b, val c);      /* the same, rounded towards -infinity */
val maximum(struct ir *k, val a, val b); /* float; the other operand when one is nan */
val exp2_approx(struct ir *k, val a);    /* ex2.approx.ftz: 2 ulp */
val log2_approx(struct ir *k, val a);
val sqrt_approx(struct ir *k, val a);
val reciprocal_approx(struct ir *k, val a);

val is_eq(struct ir *k, val a, val b);
val is_ne(struct ir *k, val a, val b);
val is_lt(struct ir *k, val a, val b);
val is_le(struct ir *k, val a, val b);
val is_ge(struct ir *k, val a, val b);
val is_uge(struct ir *k, val a, val b); /* unsigned */
val is_ugt(struct ir *k, val a, val b);
val both(struct ir *k, val a, val b);
val either(struct ir *k, val a, val b);
val choose(struct ir *k, val condition, val yes, val no);

val widen(struct ir *k, val i32_value);      /* i32 -> i64, sign-extended */
val narrow(struct ir *k, val i64_value);     /* i64 -> i32, low half */
val widen_bool(struct ir *k, val condition); /* i1 -> i32, 0 or 1 */
val to_float(struct ir *k, val i32_value);   /* signed */
val bits_of(struct ir *k, val f32_value);    /* f32 -> i32, same bits */
val float_of(struct ir *k, val i32_bits);
val round_half(struct ir *k, val f32_value); /* f32 -> half, to nearest even */
val pack_half(struct ir *k, val lo,
              val hi); /* two f32 -> i32, rounded to nearest even, lo in the low half */
val half_lo(struct ir *k, val pair); /* low half of an i32 pair -> f32 */
val half_hi(struct ir *k, val pair);
val half_blend(struct ir *k, val x, val wx, val y, val wy); /* pairs: x wx + y wy in f32, rounded */
val element(struct ir *k, val vector, int i, type t);
val pack2(struct ir *k, val a, val b);   /* two f32 (i32) -> a vector of two */
val pack4(struct ir *k, const val v[4]); /* four i32 -> vector<4xi32> */

/* ---- memory ---- */

val at(struct ir *k, val pointer, val byte_offset); /* offset i32 or i64 */
val at_const(struct ir *k, val pointer, int64_t byte_offset);
/* Row |row| (i32) of an array with rows of |row_bytes| (i32); the product is 64 bits wide. */
val at_row(struct ir *k, val pointer, val row, val row_bytes);
/* The same of a global array, |row| >= 0 and |row_bytes| (i32) unsigned: one mad.wide also where
   LLVM would widen |row_bytes| ahead of a loop and multiply 64 bits in it. */
val at_row_wide(struct ir *k, val pointer, val row, val row_bytes);
val load(struct ir *k, type t, val pointer, int align);
void store(struct ir *k, val v, val pointer, int align);
/* One f32 to global memory where |condition| holds: predicated, not branched. */
void store_if(struct ir *k, val condition, val f32_value, val global_pointer);
/* The same of one i32 to shared memory. */
void store_shared_if(struct ir *k, val condition, val i32_value, val shared_pointer);
/* One i32 of global memory where |condition| holds, else |otherwise|: predicated, not branched. */
val load_if(struct ir *k, val condition, val global_pointer, val i32_otherwise);
/* The sector of global memory at |pointer| to L2; nothing waits for it. */
void prefetch(struct ir *k, val global_pointer);
/* *p += v of i32 in global memory by all threads; what was there before. */
val atomic_add(struct ir *k, val global_pointer, val i32_value);
/* The same of shared memory, which no thread asks for. */
void shared_add(struct ir *k, val shared_pointer, val i32_value);
void shared_or(struct ir *k, val shared_pointer, val i32_value);
val is_null_pointer(struct ir *k, val global_pointer);
val shared_address(struct ir *k, val shared_pointer); /* i32 */
val shared_pointer(struct ir *k, val address);

struct var {
  val slot;
  type t;
};
struct var var_new(struct ir *k, type t);
struct var var_init(struct ir *k, val v); /* var_new and set */
val get(struct ir *k, struct var v);
void set(struct ir *k, struct var v, val x);

/* ---- control ---- */

struct ir_scope {
  MlirBlock outer;
  MlirOperation op;
  val index;
  bool open;
};
struct ir_scope ir_for_begin(struct ir *k, val begin, val end, val step, const char *file,
                             int line);
struct ir_scope ir_if_begin(struct ir *k, val condition, const char *file, int line);
struct ir_scope ir_else_begin(struct ir *k, const char *file,
                              int line); /* of the IF that closed just before */
struct ir_scope ir_while_begin(struct ir *k, const char *file, int line);
bool ir_while_test(struct ir *k, struct ir_scope *scope, val condition); /* true */
void ir_scope_end(struct ir *k, struct ir_scope *scope);

/* for (int i = begin; i < end; i += step), signed i32. */
#define FOR_STEP(k, i, begin, end, step)                                                           \
  for (struct ir_scope i##_scope = ir_for_begin(k, begin, end, step, __FILE__, __LINE__);          \
       i##_scope.open; ir_scope_end(k, &i##_scope))                                                \
    for (val i = i##_scope.index, *i##_once = &i; i##_once; i##_once = NULL)
#define FOR(k, i, begin, end) FOR_STEP(k, i, begin, end, i32(k, 1))
#define IR_JOIN_(a, b) a##b
#define IR_JOIN(a, b) IR_JOIN_(a, b)
#define IR_SCOPE(k, name, open_scope)                                                              \
  for (struct ir_scope name = open_scope; name.open; ir_scope_end(k, &name))
/* |condition| is emitted inside the loop: it is evaluated before every pass. */
#define WHILE(k, condition)                                                                        \
  for (struct ir_scope while_scope = ir_while_begin(k, __FILE__, __LINE__);                        \
       while_scope.open && ir_while_test(k, &while_scope, condition);                              \
       ir_scope_end(k, &while_scope))
#define IF(k, condition)                                                                           \
  IR_SCOPE(k, IR_JOIN(if_, __LINE__), ir_if_begin(k, condition, __FILE__, __LINE__))
#define ELSE(k) IR_SCOPE(k, IR_JOIN(else_, __LINE__), ir_else_begin(k, __FILE__, __LINE__))

/* ---- kernels ---- */

enum ir_arg_kind { IR_ARG_MAP, IR_ARG_PTR, IR_ARG_I32, IR_ARG_I64, IR_ARG_F32 };
struct ir_arg {
  enum ir_arg_kind kind;
  const char *name;
};

/* Opens a kernel of |n_args| parameters: ops go to its entry block until kernel_end; k->arg holds
   the parameters (pointers already in the global address space, maps as they are). |args| must
   outlive the kernel. */
void kernel_begin(struct ir *k, int n_args, const struct ir_arg *args);
/* Closes it as |entry|, with |threads| per CTA required. |ctas_per_sm| of them shall fit an SM by
   their registers: what limits the registers of a thread. */
void kernel_end(struct ir *k, const char *entry, int threads, int ctas_per_sm);

val thread_index(struct ir *k);
val cta_index(struct ir *k);
val cta_count(struct ir *k);

#endif
