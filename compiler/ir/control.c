/* Run-time loops and branches as C scopes (scf.for, scf.while, scf.if without results); see ir.h.
 */
#include <assert.h>

#include "compiler/ir/build.h"

static struct ir_scope enter(struct ir *k, MlirOperation op, MlirBlock body) {
  struct ir_scope scope = {.outer = k->block, .op = op, .open = true};
  k->block = body;
  return scope;
}

struct ir_scope ir_for_begin(struct ir *k, val begin, val end, val step, const char *file,
                             int line) {
  ir_here(k, file, line);
  MlirRegion region = mlirRegionCreate();
  MlirBlock body = mlirBlockCreate(1, &k->i32, &k->location);
  mlirRegionAppendOwnedBlock(region, body);
  MlirOperation op = ir_build(k, &(struct ir_build){.name = "scf.for",
                                                    .attributes = "",
                                                    .n_operands = 3,
                                                    .operands = (const val[]){begin, end, step},
                                                    .n_regions = 1,
                                                    .regions = &region});
  mlirBlockAppendOwnedOperation(k->block, op);
  struct ir_scope scope = enter(k, op, body);
  scope.index = mlirBlockGetArgument(body, 0);
  return scope;
}

struct ir_scope ir_if_begin(struct ir *k, val condition, const char *file, int line) {
  ir_here(k, file, line);
  MlirRegion regions[2] = {mlirRegionCreate(), mlirRegionCreate()};
  MlirBlock body = mlirBlockCreate(0, NULL, NULL);
  mlirRegionAppendOwnedBlock(regions[0], body);
  MlirOperation op = ir_build(k, &(struct ir_build){.name = "scf.if",
                                                    .attributes = "",
                                                    .n_operands = 1,
                                                    .operands = &condition,
                                                    .n_regions = 2,
                                                    .regions = regions});
  mlirBlockAppendOwnedOperation(k->block, op);
  return enter(k, op, body);
}

struct ir_scope ir_else_begin(struct ir *k, const char *file, int line) {
  ir_here(k, file, line);
  assert(!mlirOperationIsNull(k->last_if));
  MlirBlock body = mlirBlockCreate(0, NULL, NULL);
  mlirRegionAppendOwnedBlock(mlirOperationGetRegion(k->last_if, 1), body);
  return enter(k, k->last_if, body);
}

struct ir_scope ir_while_begin(struct ir *k, const char *file, int line) {
  ir_here(k, file, line);
  MlirRegion regions[2] = {mlirRegionCreate(), mlirRegionCreate()};
  MlirBlock blocks[2];
  for (int i = 0; i < 2; i++) {
    blocks[i] = mlirBlockCreate(0, NULL, NULL);
    mlirRegionAppendOwnedBlock(regions[i], blocks[i]);
  }
  MlirOperation op =
      ir_build(k, &(struct ir_build){
                      .name = "scf.while", .attributes = "", .n_regions = 2, .regions = regions});
  mlirBlockAppendOwnedOperation(k->block, op);
  return enter(k, op, blocks[0]);
}

bool ir_while_test(struct ir *k, struct ir_scope *scope, val condition) {
  OP(k, "scf.condition", NO_TYPE, "", condition);
  k->block = mlirRegionGetFirstBlock(mlirOperationGetRegion(scope->op, 1));
  return true;
}

void ir_scope_end(struct ir *k, struct ir_scope *scope) {
  OP0(k, "scf.yield", NO_TYPE, "");
  k->block = scope->outer;
  k->last_if = scope->op;
  scope->open = false;
}
