/* Running sums by shuffles, and by one row of warps' sums in shared memory; see scan.h. */
#include "compiler/sm90/scan.h"

#include <assert.h>

#include "compiler/sm90/sync.h"

enum { WARP = 32, WORD = 4 };

val warp_running_sum(struct ir *k, val v, const struct lanes *lanes) {
  for (int distance = 1; distance < WARP; distance *= 2) {
    val lower = add_const(k, lanes->lane, -distance);
    val is_there = is_ge(k, lower, i32(k, 0));
    val other = warp_read(k, v, choose(k, is_there, lower, lanes->lane));
    v = add(k, v, choose(k, is_there, other, i32(k, 0)));
  }
  return v;
}

void cta_scan(struct ir *k, int n, const val *v, val *before, val *total, val scratch, int warps,
              const struct lanes *lanes) {
  assert(n <= SCAN_MAX && warps <= WARP);
  val mine = mul_const(k, lanes->warp, WORD), is_last = is_eq(k, lanes->lane, i32(k, WARP - 1));
  for (int i = 0; i < n; i++) {
    before[i] = warp_running_sum(k, v[i], lanes);
    IF (k, is_last) {
      store(k, before[i], at(k, at_const(k, scratch, scan_bytes(i)), mine), WORD);
    }
    before[i] = sub(k, before[i], v[i]);
  }
  cta_sync(k);
  val is_warp = is_lt(k, lanes->lane, i32(k, warps));
  val warp = mul_const(k, choose(k, is_warp, lanes->lane, i32(k, 0)), WORD);
  for (int i = 0; i < n; i++) {
    val sum = load(k, k->i32, at(k, at_const(k, scratch, scan_bytes(i)), warp), WORD);
    val part = choose(k, is_warp, sum, i32(k, 0)), running = warp_running_sum(k, part, lanes);
    total[i] = warp_read(k, running, i32(k, WARP - 1));
    before[i] = add(k, before[i], warp_read(k, sub(k, running, part), lanes->warp));
  }
  cta_sync(k);
}
