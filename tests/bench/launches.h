/* launches.h: stands between libpisa and the driver's launches, to tell our host time from the
   driver's. In: a loaded module. Out: its launches passed on, dropped, or recorded and repeated
   bare. One module at a time, one thread. Also a shared library, for host_time.py. */
#ifndef PISA_TESTS_BENCH_LAUNCHES_H
#define PISA_TESTS_BENCH_LAUNCHES_H

enum launches_mode {
  LAUNCHES_PASS = 0,  /* to the driver */
  LAUNCHES_DROP = 1,  /* succeed and do nothing: what is left is libpisa's own time, with tensor
                         maps and the current context asked of the real driver */
  LAUNCHES_RECORD = 2 /* to the driver, and kept with their parameters */
};

enum { LAUNCHES_MOST = 16 }; /* that are kept */

/* |module|: a pisa_module of the libpisa that this was built beside. */
void launches_hook(void *module);
/* Also forgets what is counted and, for LAUNCHES_RECORD, what is kept. */
void launches_set(int mode);
int launches_count(void);
/* What is kept, |times| over: 0, or the driver's result, or -1 when there is nothing. */
int launches_repeat(int times);

#endif
