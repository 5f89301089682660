#include "pipeline/peaks.h"

#include "stages/base/clock.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY = 256 << 20, BLOCK = 512 };

/* Best speed of one thread, in 1e9 per second, in turns until the time is over. part NULL: no memory is read. */
static double best_of_thread(const struct kern_peaks *k, kern_peak_fn *work, const char *part,
                             size_t bytes, int64_t us)
{
    double best = 0;
    int64_t start = clock_us(), now = start;
    for (int i = 0; i < 2 || now - start < us; i++) {
        int64_t begin = now;
        double n = (double)bytes;
        if (part)
            k->read(part, bytes);
        else
            n = work();
        now = clock_us();
        double speed = n / 1e3 / (double)(now - begin > 0 ? now - begin : 1);
        best = speed > best ? speed : best;
    }
    return best;
}

static double measure(const struct kern_peaks *k, kern_peak_fn *work, const char *memory,
                      int threads, double seconds)
{
    double sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        size_t n = (size_t)omp_get_num_threads(), i = (size_t)omp_get_thread_num();
        size_t bytes = MEMORY / n / BLOCK * BLOCK;
#pragma omp barrier
        sum += best_of_thread(k, work, memory ? memory + i * bytes : NULL, bytes,
                              (int64_t)(seconds * 1e6));
    }
    return sum;
}

static void keep(struct peak *p, const struct kern_peaks *k, kern_peak_fn *work,
                 const char *memory, int threads, double seconds)
{
    double one = measure(k, work, memory, 1, seconds);
    double all = threads > 1 ? measure(k, work, memory, threads, seconds) : one;
    p->one = one > p->one ? one : p->one;
    p->all = all > p->all ? all : p->all;
}

void peaks_init(struct peaks *p, const char *table, int threads)
{
    *p = (struct peaks){.threads = threads};
    kern_peaks_init(&p->loops, table);
}

int peaks_measure(struct peaks *p, double seconds, struct err *e)
{
    char *memory = aligned_alloc(64, MEMORY);
    if (!memory)
        return err_set(e, REACH_JOB, ERR_NOMEM, "no memory to measure its speed: %d MiB",
                       MEMORY >> 20);
    memset(memory, 1, MEMORY);
    double each = seconds / (p->threads > 1 ? 6 : 3);
    keep(&p->floats, &p->loops, p->loops.floats, NULL, p->threads, each);
    keep(&p->bytes, &p->loops, p->loops.bytes, NULL, p->threads, each);
    keep(&p->read, &p->loops, NULL, memory, p->threads, each);
    free(memory);
    return 0;
}
