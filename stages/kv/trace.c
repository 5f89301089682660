/* The ring is an array of 64-bit words, in the file and in memory alike; trace_read.h has the layout. It is filled in
 * memory, and each event is copied to the file by write(2) as it comes (about a microsecond): what a killed process
 * wrote is there, and a file that is cut or deleted under it, or may not grow, costs the trace and nothing else. (A map
 * of the file would end the process then.) A writer
 *
 *     1. takes a number:  header.next += 1
 *     2. spoils the slot: number = 0
 *     3. fills it
 *     4. makes it valid:  number = i + 1
 *
 * Two writers meet in one slot only when one of them sleeps while the others go once around the ring. What they
 * leave together fails its checksum, or is the older event, whose number a reader does not expect there.
 *
 * The words are written by atomic stores, so that a mix of threads is a mix of words and nothing worse.
 */
#include "stages/kv/trace.h"

#include "stages/base/clock.h"
#include "stages/base/mem.h"
#include "stages/kv/trace_read.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sdt.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOT_WORDS = TRACE_SLOT_BYTES / 8,
    HEADER_WORDS = TRACE_HEADER_BYTES / 8,
    NEXT = 3,
    CREATE_TRIES = 100,
};

struct kv_ring {
    _Atomic uint64_t *words; /* header, then slots */
    size_t bytes;
    int fd; /* -1: in memory alone */
    uint64_t slots;
    int64_t start_us;
};

static const char *const op_names[KV_OP_COUNT] = {
    [KV_ALLOC] = "alloc",
    [KV_FREE] = "free",
    [KV_REF] = "ref",
    [KV_UNREF] = "unref",
    [KV_HIT] = "hit",
    [KV_MISS] = "miss",
    [KV_SPILL] = "spill",
    [KV_LOAD] = "load",
    [KV_EVICT] = "evict",
    [KV_CORRUPT] = "corrupt",
    [KV_RECOMPUTE] = "recompute",
};

const char *kv_op_name(enum kv_op op)
{
    return (unsigned)op < KV_OP_COUNT ? op_names[op] : NULL;
}

const char *kv_tier_name(enum kv_tier tier)
{
    static const char *const names[KV_TIER_COUNT] = {"ram", "disk"};
    return (unsigned)tier < KV_TIER_COUNT ? names[tier] : NULL;
}

/* ---- life ---- */

/* A new file of that many bytes. The name is unlinked first: another process may still write to its own. */
static int make_file(const char *path, size_t bytes, struct err *e)
{
    int fd = -1, failed = 0;
    /* Two runs that begin at once unlink each other's: the later one is found there from then on. */
    for (int i = 0; fd < 0 && i < CREATE_TRIES && (unlink(path) == 0 || errno == ENOENT); i++)
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        failed = posix_fallocate(fd, 0, (off_t)bytes);
    if (fd >= 0 && !failed)
        return fd;
    err_set(e, REACH_DOC, ERR_IO, "%s: cannot %s the ring of KV events: %s", path,
            fd < 0 ? "create" : "allocate", strerror(failed ? failed : errno));
    if (fd >= 0) {
        unlink(path);
        close(fd);
    }
    return -1;
}

/* Words [first, first + n) to the file. A failure is the loss of an event. */
static void copy_to_file(const struct kv_ring *r, size_t first, size_t n)
{
    uint64_t words[HEADER_WORDS > SLOT_WORDS ? HEADER_WORDS : SLOT_WORDS];
    if (r->fd < 0)
        return;
    for (size_t i = 0; i < n; i++)
        words[i] = atomic_load_explicit(&r->words[first + i], memory_order_relaxed);
    ssize_t done = pwrite(r->fd, words, 8 * n, (off_t)(8 * first));
    (void)done;
}

static void write_header(struct kv_ring *r)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t words[HEADER_WORDS] = {0};
    memcpy(&words[0], TRACE_MAGIC, 8);
    words[1] = htole64((uint64_t)TRACE_SLOT_BYTES << 32 | TRACE_VERSION);
    words[2] = htole64(r->slots);
    words[4] = htole64((uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
    words[5] = htole64((uint32_t)getpid());
    for (int i = 0; i < HEADER_WORDS; i++)
        atomic_store_explicit(&r->words[i], words[i], memory_order_relaxed);
    copy_to_file(r, 0, HEADER_WORDS);
}

int kv_ring_open(struct kv_ring **out, const char *path, int n, struct err *e)
{
    if (n < 1 || n > TRACE_MAX_SLOTS)
        return err_set(e, REACH_DOC, ERR_LIMIT, "a ring of %d KV events: 1 to %d are possible",
                       n, TRACE_MAX_SLOTS);
    uint64_t slots = 2;
    while (slots < (uint64_t)n)
        slots *= 2;
    size_t bytes = TRACE_HEADER_BYTES + (size_t)slots * TRACE_SLOT_BYTES;
    int fd = path ? make_file(path, bytes, e) : -1;
    if (path && fd < 0)
        return -ERR_IO;
    void *words = mem_aligned(bytes);
    if (!words) {
        if (fd >= 0)
            close(fd);
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %d KV events", n);
    }
    struct kv_ring *r = mem_need(sizeof(*r));
    *r = (struct kv_ring){
        .words = words, .bytes = bytes, .fd = fd, .slots = slots, .start_us = clock_us()};
    write_header(r);
    *out = r;
    return 0;
}

void kv_ring_close(struct kv_ring *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    free(r->words);
    free(r);
}

const void *kv_ring_bytes(const struct kv_ring *r, size_t *n)
{
    *n = r->bytes;
    return r->words;
}

/* ---- events ---- */

/* Numbers in the file are little-endian; where the machine is not, next is counted by a loop of its own. */
static uint64_t take_number(struct kv_ring *r)
{
#if __BYTE_ORDER == __LITTLE_ENDIAN
    return atomic_fetch_add_explicit(&r->words[NEXT], 1, memory_order_relaxed);
#else
    uint64_t seen = atomic_load_explicit(&r->words[NEXT], memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&r->words[NEXT], &seen, htole64(le64toh(seen) + 1)))
        ;
    return le64toh(seen);
#endif
}

static void append(struct kv_ring *r, enum kv_op op, enum kv_tier tier, int page, uint64_t key,
                   uint64_t bytes)
{
    const uint64_t most = (UINT64_C(1) << TRACE_BYTES_BITS) - 1;
    uint64_t number = take_number(r);
    size_t at = HEADER_WORDS + (size_t)(number & (r->slots - 1)) * SLOT_WORDS;
    _Atomic uint64_t *slot = r->words + at;
    uint64_t words[SLOT_WORDS] = {number + 1, (uint64_t)(clock_us() - r->start_us), key,
                                  (bytes < most ? bytes : most) |
                                      (uint64_t)op << TRACE_BYTES_BITS |
                                      (uint64_t)tier << (TRACE_BYTES_BITS + 8)};
    words[4] = (uint64_t)trace_check(words, (uint32_t)page) << 32 | (uint32_t)page;
    atomic_store_explicit(&slot[0], 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* nobody sees new words under the old number */
    for (int i = 1; i < SLOT_WORDS; i++)
        atomic_store_explicit(&slot[i], htole64(words[i]), memory_order_relaxed);
    atomic_store_explicit(&slot[0], htole64(words[0]), memory_order_release);
    copy_to_file(r, at, SLOT_WORDS);
    copy_to_file(r, NEXT, 1);
}

/* A probe is one nop until a tool attaches to it. */
static void fire(enum kv_op op, enum kv_tier tier, int page, uint64_t key, uint64_t bytes)
{
    switch (op) {
    case KV_ALLOC:
        STAP_PROBE4(quire, kv_alloc, page, tier, key, bytes);
        break;
    case KV_FREE:
        STAP_PROBE4(quire, kv_free, page, tier, key, bytes);
        break;
    case KV_REF:
        STAP_PROBE4(quire, kv_ref, page, tier, key, bytes);
        break;
    case KV_UNREF:
        STAP_PROBE4(quire, kv_unref, page, tier, key, bytes);
        break;
    case KV_HIT:
        STAP_PROBE4(quire, kv_hit, page, tier, key, bytes);
        break;
    case KV_MISS:
        STAP_PROBE4(quire, kv_miss, page, tier, key, bytes);
        break;
    case KV_SPILL:
        STAP_PROBE4(quire, kv_spill, page, tier, key, bytes);
        break;
    case KV_LOAD:
        STAP_PROBE4(quire, kv_load, page, tier, key, bytes);
        break;
    case KV_EVICT:
        STAP_PROBE4(quire, kv_evict, page, tier, key, bytes);
        break;
    case KV_CORRUPT:
        STAP_PROBE4(quire, kv_corrupt, page, tier, key, bytes);
        break;
    case KV_RECOMPUTE:
        STAP_PROBE4(quire, kv_recompute, page, tier, key, bytes);
        break;
    case KV_OP_COUNT:
        break;
    }
}

void kv_trace(struct kv_ring *r, enum kv_op op, enum kv_tier tier, int page, uint64_t key,
              uint64_t bytes)
{
    fire(op, tier, page, key, bytes);
    if (r)
        append(r, op, tier, page, key, bytes);
}
