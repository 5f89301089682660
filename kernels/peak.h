/* kernels/peak.h - loops of nothing but what limits a table: the roofs that speeds are set against.
 *
 * What:   multiply-adds of floats and of bytes from registers, and reads of memory, at the width of a table.
 * Not:    no clock: callers time the calls. Speeds swing by a third on shared machines; shares of a roof that
 *         was measured in the same moments do not.
 * Thread: safe; a call keeps one core busy.
 */
#ifndef QUIRE_KERNELS_PEAK_H
#define QUIRE_KERNELS_PEAK_H

#include <stddef.h>

/* Some 0.2 ms of work: clocks tell microseconds. Returns the operations done; a multiply is one, and so is an add. */
typedef double kern_peak_fn(void);
/* Read p[0, n); n is a multiple of 512 and p aligned to 64. */
typedef void kern_peak_read_fn(const void *p, size_t n);

struct kern_peaks {
    const char *floats_by, *bytes_by; /* the instructions */
    kern_peak_fn *floats, *bytes;
    kern_peak_read_fn *read;
};

/* For the table of this name (struct kernels); the CPU must have it. */
void kern_peaks_init(struct kern_peaks *p, const char *table);

#endif
