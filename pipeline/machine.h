/* pipeline/machine.h - what this process may use: memory and CPUs.
 *
 * What:   MemAvailable, the limits of the control groups (version 2) it is in, its CPU set and quota.
 * Rules:  what cannot be read does not limit; the numbers are of the moment.
 */
#ifndef QUIRE_PIPELINE_MACHINE_H
#define QUIRE_PIPELINE_MACHINE_H

#include <stdint.h>

struct machine {
    uint64_t available; /* bytes; UINT64_MAX: unknown */
    uint64_t group;     /* smallest memory.max or memory.high of its groups; UINT64_MAX: none */
    const char *group_name; /* "cgroup memory.max", "cgroup memory.high" or NULL */
    int cpus;               /* >= 1: of the CPU set, or the quota rounded up if that is less */
    int online, cpu_set;    /* CPUs of the machine; those that this process may run on */
    double quota;           /* CPUs by the smallest cpu.max of its groups; 0: none */
};

/* root is put in front of /proc and /sys: "" but for tests. */
void machine_read(struct machine *m, const char *root);

#endif
