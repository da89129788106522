/* parallel.h: a loop over independent tasks on several threads. */
#ifndef PISA_CPU_PARALLEL_H
#define PISA_CPU_PARALLEL_H

#include <stdint.h>

enum { CPU_MAX_THREADS = 256 };

/* |wanted| threads, 0 for one per online processor; always in [1, CPU_MAX_THREADS]. */
int cpu_threads(int wanted);
/* Calls body(context, thread, task) once for each task in [0, tasks), thread in [0, threads), and
   waits for all. The caller's thread takes part; when a thread cannot be started, the others do its
   work. */
void cpu_parallel(int threads, int64_t tasks, void (*body)(void *context, int thread, int64_t task),
                  void *context);

#endif
