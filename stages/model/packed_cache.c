/* Opening a file costs its head and a few blocks, whatever its size. The first pass reads all of it anyway: the
 * thread that reads ahead has the pages mapped before the pass gets there, and sums what it reads. */
#include "stages/model/packed_cache.h"

#include "stages/base/clock.h"
#include "stages/base/file.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/model/packed_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

struct packed_map {
    char *path;
    uint8_t *file; /* the map */
    size_t len;
    uint64_t bytes; /* of weights */
    struct file_id id;
    atomic_bool stop, damaged;
    bool reading;
    pthread_t reader;
};

/* -1: absent, or not what it must be. */
static int open_sized(const char *path, uint64_t want, const char **why)
{
    uint64_t size;
    int fd = file_open_own(path, &size, why);
    if (fd >= 0 && size != want) {
        *why = "not its size";
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool block_ok(const struct packed_map *p, uint64_t block)
{
    return packed_sum_get(p->file, block) == packed_sum_of(packed_data(p), p->bytes, block);
}

static bool all_ok(const struct packed_map *p)
{
    long bad = 0, n = (long)packed_blocks(p->bytes);
#pragma omp parallel for reduction(+ : bad)
    for (long i = 0; i < n; i++)
        bad += !block_ok(p, (uint64_t)i);
    return bad == 0;
}

/* The last block, and some that are others on each start. */
static bool sample_ok(const struct packed_map *p)
{
    enum { SAMPLES = 16 };
    uint64_t n = packed_blocks(p->bytes), x = (uint64_t)clock_us() ^ (uint64_t)getpid() << 32;
    bool ok = n == 0 || block_ok(p, n - 1);
    for (int i = 0; ok && n && i < SAMPLES; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ok = block_ok(p, (x >> 33) % n);
    }
    return ok;
}

/* Only the file that was mapped goes, not one that has taken its name since. */
static void remove_damaged(struct packed_map *p)
{
    struct file_id now;
    struct err e = {0};
    p->damaged = true;
    if (file_id_of(p->path, &now, &e) == 0 && now.dev == p->id.dev && now.ino == p->id.ino)
        (void)unlink(p->path); /* the next write replaces it anyway */
    log_warn("model", "packed weights are damaged and removed path=%s", p->path);
}

static char *path_of(const char *folder, const uint8_t key[HASH_BYTES])
{
    char name[HASH_HEX + sizeof(PACKED_SUFFIX)];
    hash_hex(key, name);
    memcpy(name + HASH_HEX - 1, PACKED_SUFFIX, sizeof(PACKED_SUFFIX));
    return file_join(folder, name);
}

struct packed_map *packed_open(const char *folder, const uint8_t key[HASH_BYTES],
                               uint64_t bytes, bool all, const char **why)
{
    struct err e = {0};
    char *path = path_of(folder, key);
    uint64_t len = packed_file_bytes(bytes);
    *why = NULL;
    int fd = open_sized(path, len, why);
    void *file = fd < 0 ? MAP_FAILED : mmap(NULL, (size_t)len, PROT_READ, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        free(path);
        return NULL;
    }
    struct packed_map *p = mem_need(sizeof(*p));
    p->path = path;
    p->file = file;
    p->len = (size_t)len;
    p->bytes = bytes;
    if (file_id_of(path, &p->id, &e) != 0)
        *why = "gone";
    else if (!packed_head_ok(p->file, len, key, bytes))
        *why = "its head is wrong";
    else if (!(all ? all_ok(p) : sample_ok(p)))
        *why = "a sum is wrong";
    if (*why && strcmp(*why, "gone") != 0)
        remove_damaged(p);
    (void)futimens(fd,
                   NULL); /* its last use; a file system that is read-only keeps the old one */
    close(fd);
    if (*why) {
        packed_close(p);
        return NULL;
    }
    (void)madvise(file, p->len, MADV_HUGEPAGE); /* where the system has them for files */
    return p;
}

const void *packed_data(const struct packed_map *p)
{
    return p->file + packed_data_at(p->bytes);
}

static void *read_ahead(void *arg)
{
    struct packed_map *p = arg;
    enum { BLOCKS = 16 };
    uint64_t n = packed_blocks(p->bytes), at = packed_data_at(p->bytes);
    for (uint64_t i = 0; i < n && !p->stop; i++) {
        if (i % BLOCKS == 0) {
            uint64_t begin = at + i * PACKED_BLOCK, left = p->len - begin,
                     want = (uint64_t)BLOCKS * PACKED_BLOCK;
            (void)madvise(p->file + begin, (size_t)(left < want ? left : want),
                          MADV_POPULATE_READ); /* older systems fault page by page */
        }
        if (!block_ok(p, i)) {
            remove_damaged(p);
            break;
        }
    }
    return NULL;
}

void packed_read_ahead(struct packed_map *p)
{
    p->reading = pthread_create(&p->reader, NULL, read_ahead, p) == 0;
}

bool packed_damaged(const struct packed_map *p)
{
    return p->damaged;
}

void packed_condemn(struct packed_map *p)
{
    remove_damaged(p);
    packed_close(p);
}

void packed_close(struct packed_map *p)
{
    if (!p)
        return;
    p->stop = true;
    if (p->reading)
        pthread_join(p->reader, NULL);
    munmap(p->file, p->len);
    free(p->path);
    free(p);
}
