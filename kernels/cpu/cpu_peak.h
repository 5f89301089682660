/* kernels/cpu/cpu_peak.h - the loops of kernels/peak.h for every CPU table. */
#ifndef QUIRE_KERNELS_CPU_CPU_PEAK_H
#define QUIRE_KERNELS_CPU_CPU_PEAK_H

#include "kernels/peak.h"

kern_peak_fn peak_floats_ref, peak_floats_avx2, peak_floats_avx512;
kern_peak_fn peak_bytes_ref, peak_bytes_avx2, peak_bytes_avx512;
kern_peak_read_fn peak_read_ref, peak_read_avx2;

#endif
