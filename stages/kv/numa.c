#define _GNU_SOURCE /* sched_setaffinity */
#include "stages/kv/numa.h"

#include "stages/base/buf.h"
#include "stages/base/file.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LIST_MAX = 1 << 14 };

bool numa_parse_cpus(const char *list, cpu_set_t *out)
{
    CPU_ZERO(out);
    bool any = false;
    for (const char *at = list; *at && *at != '\n';) {
        char *end;
        if (!isdigit((unsigned char)*at))
            return false;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1]))
                return false;
            last = strtoul(end + 1, &end, 10);
        }
        if (last < first || last >= CPU_SETSIZE)
            return false;
        for (; first <= last; first++)
            CPU_SET(first, out);
        any = true;
        at = end;
        if (*at == ',' && isdigit((unsigned char)at[1]))
            at++;
        else if (*at && *at != '\n')
            return false;
    }
    return any;
}

/* The node that holds an address; -1 when the kernel does not say. */
static int node_of(void *at)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *pages[1] = {(void *)((uintptr_t)at & ~(page - 1))};
    int status[1] = {-1};
    if (syscall(SYS_move_pages, 0, 1UL, pages, NULL, status, 0) != 0)
        return -1;
    return status[0];
}

static bool has_second_node(void)
{
    return access("/sys/devices/system/node/node1", F_OK) == 0;
}

void numa_stay_near(void *at)
{
    int node = has_second_node() ? node_of(at) : -1;
    if (node < 0)
        return;
    char path[80];
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
    struct buf list;
    struct err e = {0};
    cpu_set_t near, allowed;
    buf_init(&list, LIST_MAX);
    if (file_read(path, &list, &e) == 0 && buf_add(&list, "", 1, &e) == 0 &&
        numa_parse_cpus(list.data, &near) &&
        sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
        CPU_AND(&near, &near, &allowed);
        if (CPU_COUNT(&near) > 0)
            (void)sched_setaffinity(0, sizeof(near), &near); /* a wish, not a need */
    }
    buf_release(&list);
}
