/* parallel.c: a counter of tasks in, every task run once. Threads are started per loop: a loop here
   lasts milliseconds, a start some 20 microseconds. */
#include "runtime/cpu/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

struct loop {
  void (*body)(void *context, int thread, int64_t task);
  void *context;
  int64_t tasks;
  _Atomic int64_t next;
};

struct worker {
  struct loop *loop;
  int index;
  pthread_t thread;
};

int cpu_threads(int wanted) {
  long n = wanted > 0 ? wanted : sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > CPU_MAX_THREADS ? CPU_MAX_THREADS : (int)n;
}

static void *work(void *argument) {
  struct worker *worker = argument;
  struct loop *loop = worker->loop;
  for (int64_t task; (task = atomic_fetch_add(&loop->next, 1)) < loop->tasks;)
    loop->body(loop->context, worker->index, task);
  return NULL;
}

void cpu_parallel(int threads, int64_t tasks, void (*body)(void *context, int thread, int64_t task),
                  void *context) {
  struct loop loop = {.body = body, .context = context, .tasks = tasks, .next = 0};
  struct worker workers[CPU_MAX_THREADS];
  int started = 1, limit = tasks < threads ? (int)tasks : threads;
  workers[0] = (struct worker){.loop = &loop, .index = 0};
  while (started < limit) {
    workers[started] = (struct worker){.loop = &loop, .index = started};
    if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0)
      break;
    started++;
  }
  work(&workers[0]);
  for (int i = 1; i < started; i++)
    pthread_join(workers[i].thread, NULL);
}
