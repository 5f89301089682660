/* `quire doctor kernels`: which table, which CPU, how many threads, and what that machine can do at most. */
#include "pipeline/doctor.h"

#include "kernels/features.h"
#include "pipeline/peaks.h"
#include "pipeline/setup.h"
#include "stages/model/model_opts.h"

#include <stdio.h>
#include <string.h>

enum { SECONDS = 3 };

int doctor_threads(const struct patient *p, char *why, size_t cap)
{
    const struct machine *m = &p->machine;
    if (p->threads) {
        snprintf(why, cap, "limits.threads");
        return p->threads;
    }
    int n = snprintf(why, cap, "%d of %d CPUs in the CPU set", m->cpu_set, m->online);
    if (m->quota > 0 && n > 0 && (size_t)n < cap)
        snprintf(why + n, cap - (size_t)n, ", cgroup cpu.max allows the time of %.2f",
                 m->quota);
    return m->cpus;
}

/* "Intel(R) Xeon(R) Processor", or what is known. */
static void cpu_name(char *out, size_t cap)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];
    snprintf(out, cap, "unknown");
    while (f && fgets(line, sizeof(line), f)) {
        const char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (value) {
            snprintf(out, cap, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

/* A line for each table: what it needs and whether this CPU has it. */
static int print_features(struct buf *out, struct err *e)
{
    struct kern_feature all[KERN_FEATURES_MAX];
    size_t n = kern_features(all, ARRAY_LEN(all));
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        bool first = i == 0 || strcmp(all[i].table, all[i - 1].table) != 0;
        bool last = i + 1 == n || strcmp(all[i].table, all[i + 1].table) != 0;
        if (first)
            rc = buf_addf(out, e, "%-9s needs", all[i].table);
        if (!rc)
            rc = buf_addf(out, e, " %s%s%s", all[i].name, all[i].there ? "" : " (missing)",
                          last ? "\n" : ",");
    }
    return rc;
}

static int print_peak(const char *what, const struct peak *p, int threads, const char *unit,
                      const char *by, struct buf *out, struct err *e)
{
    int rc = buf_addf(out, e, "%-9s one core %7.1f", what, p->one);
    if (!rc && threads > 1)
        rc = buf_addf(out, e, "   %d cores %7.1f", threads, p->all);
    return rc ? rc : buf_addf(out, e, "   %s (%s)\n", unit, by);
}

static int print_peaks(const struct peaks *p, struct buf *out, struct err *e)
{
    int rc =
        print_peak("floats", &p->floats, p->threads, "GFLOP/s", p->loops.floats_by, out, e);
    if (!rc)
        rc = print_peak("bytes", &p->bytes, p->threads, "GOP/s", p->loops.bytes_by, out, e);
    return rc ? rc
              : print_peak("memory", &p->read, p->threads, "GB/s", "reading 256 MiB", out, e);
}

int doctor_kernels(const struct patient *p, struct buf *out, struct err *e)
{
    struct kernels k;
    struct peaks peaks;
    char cpu[128], why[160];
    const struct opt *choice = opt_find(model_opts, n_model_opts, "kernels");
    int rc = setup_kernels(&k, p->kernels, e);
    if (rc)
        return rc;
    cpu_name(cpu, sizeof(cpu));
    int threads = doctor_threads(p, why, sizeof(why));
    rc = buf_addf(out, e, "table     %s (model.kernels: %s)\ncpu       %s\n", k.name,
                  choice->names[p->kernels], cpu);
    if (!rc)
        rc = print_features(out, e);
    if (!rc)
        rc = buf_addf(out, e, "rounding  %s\nthreads   %d: %s\n\n",
                      kern_float_environment_ok()
                          ? "to nearest, small numbers kept"
                          : "changed by something outside: results would differ",
                      threads, why);
    peaks_init(&peaks, k.name, threads);
    if (!rc)
        rc = peaks_measure(&peaks, SECONDS, e);
    return rc ? rc : print_peaks(&peaks, out, e);
}
