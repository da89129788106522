/* sweep.h: the parts of `pisa sweep`, which runs what a pack may vary on given tensors.

       sweep.c ........ options and tensors in; the table, the page and the recorded choice out
       sweep_attend.c . error and recall of packs that route for blocks of queries
       sweep_select.c . recall of packs that select blocks; what they cost
       sweep_time.c ... milliseconds of a point on a GPU
       sweep_front.c .. which points no other beats; the fastest that holds a bound
       sweep_page.c ... the HTML page

   A point is a variant at a density. Tensors, packs and figures are those of `pisa quality`. */
#ifndef PISA_TOOL_SWEEP_H
#define PISA_TOOL_SWEEP_H

#include "runtime/tool/quality_select.h"
#include "runtime/tool/tune.h"

struct sweep_point {
  const struct quality_pack *pack;
  double density; /* 0: the spec's budget */
  double error;   /* infinite where nothing is attended */
  double recall, mass;
  double cost; /* FLOP, in units of dense attention's */
  double ms;   /* 0: not timed */
  bool front;  /* no other point is faster and better */
};

struct sweep {
  struct quality_options options;
  struct quality_packs packs; /* of one pack */
  struct quality_scene scene;
  bool selects;
  struct sweep_point *points; /* [n], room for all */
  int n, room;
  struct tune_device on; /* where points are timed */
  bool timed;
  int64_t times_heads; /* B * H of what is timed */
};

/* One point's figures; the caller times it. */
typedef pisa_status (*sweep_add)(struct sweep *sweep, struct sweep_point point, pisa_error *error);

/* All points, without their times; |add| gets each. */
pisa_status sweep_attend(struct sweep *sweep, sweep_add add, pisa_error *error);
pisa_status sweep_select(struct sweep *sweep, sweep_add add, pisa_error *error);

/* The scene on the device, for all points. Close also after a failure. */
struct sweep_clock;
pisa_status sweep_clock_open(struct sweep *sweep, struct sweep_clock **out, pisa_error *error);
pisa_status sweep_clock_time(struct sweep_clock *clock, struct sweep_point *point,
                             pisa_error *error);
void sweep_clock_close(struct sweep_clock *clock);

/* What a point takes: ms, or its cost where none is timed. */
double sweep_effort(const struct sweep *sweep, const struct sweep_point *point);
/* Sets front of all points. */
void sweep_find_front(struct sweep *sweep);
/* The point of least effort within the bound of the options; -1: none holds it, or there is none.
 */
int sweep_pick(const struct sweep *sweep);

/* "density 0.25", "tau 1.5", "keep 8", "dense". */
void sweep_budget(const struct sweep_point *point, char *out, size_t size);
/* |chosen|: the point to mark; -1: none. */
pisa_status sweep_page_write(const char *path, const struct sweep *sweep, int chosen,
                             pisa_error *error);

#endif
