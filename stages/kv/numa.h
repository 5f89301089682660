/* stages/kv/numa.h - on machines with more than one memory node, keep a thread near its memory.
 *
 * Not:    never an error: where nothing can be found out, or one node is all, nothing is done.
 * Thread: acts on the calling thread.
 * Source: sysfs, Documentation/ABI/stable/sysfs-devices-node; move_pages(2) names the node of an address.
 */
#ifndef QUIRE_KV_NUMA_H
#define QUIRE_KV_NUMA_H

#include "stages/base/err.h"

#include <sched.h>

/* Run only on the CPUs of the node that holds the page of memory at `at`, which is touched. */
void numa_stay_near(void *at);

/* CPUs of a list as sysfs writes it ("0-3,8,10-11"). False when it is not such a list. */
bool numa_parse_cpus(const char *list, cpu_set_t *out);

#endif
