#include "kernels/peak.h"

#include "kernels/cpu/cpu_peak.h"

#include <string.h>

static const struct {
    const char *table;
    struct kern_peaks peaks;
} tables[] = {
#if defined(__x86_64__)
    {"avx512",
     {"vfmadd zmm", "vpdpbusd zmm", peak_floats_avx512, peak_bytes_avx512, peak_read_avx2}},
    {"avx2",
     {"vfmadd ymm", "vpmaddubsw + vpaddw ymm", peak_floats_avx2, peak_bytes_avx2,
      peak_read_avx2}},
#endif
    {"ref",
     {"multiply, add", "multiply, add of int32", peak_floats_ref, peak_bytes_ref,
      peak_read_ref}},
};

void kern_peaks_init(struct kern_peaks *p, const char *table)
{
    size_t i = 0, last = sizeof(tables) / sizeof(tables[0]) - 1;
    while (i < last && strcmp(tables[i].table, table) != 0)
        i++;
    *p = tables[i].peaks;
}
