/* Source: Linux, Documentation/admin-guide/cgroup-v2.rst (memory.max, memory.high, cpu.max) and proc(5). */
#define _GNU_SOURCE /* sched_getaffinity */
#include "pipeline/machine.h"

#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 + 256, TEXT_BYTES = 64 * 1024 };

/* The text of a small file; empty when it cannot be read. */
static void read_text(const char *path, char *text, size_t cap)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, cap - 1, f) : 0;
    text[n] = '\0';
    if (f)
        fclose(f);
}

static uint64_t mem_available(const char *root, char *text)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    read_text(path, text, TEXT_BYTES);
    const char *line = strstr(text, "MemAvailable:");
    unsigned long long kib;
    return line && sscanf(line, "MemAvailable: %llu kB", &kib) == 1 && kib < UINT64_MAX / 1024
               ? kib * 1024
               : UINT64_MAX;
}

/* One group's limits. A group whose files are missing (the root has none) or say "max" does not limit. */
static void read_group(struct machine *m, const char *folder, char *text)
{
    static const char *const files[] = {"memory.max", "memory.high"};
    static const char *const names[] = {"cgroup memory.max", "cgroup memory.high"};
    char path[PATH_BYTES + 32];
    for (int i = 0; i < 2; i++) {
        uint64_t v;
        snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        read_text(path, text, TEXT_BYTES);
        if (sscanf(text, "%" SCNu64, &v) == 1 && v < m->group) {
            m->group = v;
            m->group_name = names[i];
        }
    }
    uint64_t quota, period;
    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    read_text(path, text, TEXT_BYTES);
    if (sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) == 2 && period > 0) {
        uint64_t cpus = quota / period + (quota % period != 0);
        double share = (double)quota / (double)period;
        if (cpus >= 1 && cpus < (uint64_t)m->cpus)
            m->cpus = (int)cpus;
        if (share > 0 && (m->quota == 0 || share < m->quota))
            m->quota = share;
    }
}

/* The group of this process and all above it: each of them limits. */
static void read_groups(struct machine *m, const char *root, char *text)
{
    char path[PATH_BYTES], folder[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    read_text(path, text, TEXT_BYTES);
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!line)
        return;
    line = strstr(line, "::") + 2;
    snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%.*s", root, (int)strcspn(line, "\n"),
             line);
    size_t top = strlen(root) + strlen("/sys/fs/cgroup");
    for (;;) {
        read_group(m, folder, text);
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < top)
            break;
        *slash = '\0';
    }
}

void machine_read(struct machine *m, const char *root)
{
    *m = (struct machine){.available = UINT64_MAX, .group = UINT64_MAX, .cpu_set = 1};
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        m->cpu_set = CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    m->online = online > m->cpu_set ? (int)online : m->cpu_set;
    m->cpus = m->cpu_set;
    char *text = malloc(TEXT_BYTES);
    if (!text)
        return;
    m->available = mem_available(root, text);
    read_groups(m, root, text);
    free(text);
}
