/* Folders and records for the tests of the disk store: record i is a function of i alone, so that any process
 * can tell whether what it reads is right. */
#ifndef QUIRE_TESTS_UNIT_DISK_RIG_H
#define QUIRE_TESTS_UNIT_DISK_RIG_H

#include "stages/base/log.h"
#include "stages/kv/record.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RIG_BODY = 64 << 10 };

static char rig_folder[64];

static inline int rig_setup(void **state)
{
    (void)state;
    snprintf(rig_folder, sizeof(rig_folder), "/tmp/quire-disk-XXXXXX");
    log_set_level(LOG_ERROR);
    return mkdtemp(rig_folder) ? 0 : -1;
}

/* In memory, where there is such a place: thousands of syncs take no time there. */
static inline int rig_setup_fast(void **state)
{
    snprintf(rig_folder, sizeof(rig_folder), "/dev/shm/quire-disk-XXXXXX");
    log_set_level(LOG_ERROR);
    return mkdtemp(rig_folder) ? 0 : rig_setup(state);
}

static inline int rig_teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", rig_folder);
    return system(command);
}

static inline struct disk *rig_open(const struct disk_options *o)
{
    struct disk_options with = o ? *o : (struct disk_options){0};
    struct disk *d = NULL;
    struct err e = {0};
    with.folder = rig_folder;
    if (disk_open(&d, &with, &e) != 0)
        fail_msg("%s", e.msg);
    return d;
}

static inline uint64_t rig_random(uint64_t *s)
{
    *s += 0x9e3779b97f4a7c15u;
    uint64_t z = *s;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* What record i says of itself. */
static inline struct record_info rig_info(int i)
{
    struct record_info info = {.kind = i % 5 == 4 ? RECORD_TAIL : RECORD_PAGE,
                               .codec = CODEC_SPLIT,
                               .n_tokens = i % 5 == 4 ? 1 + i % 63 : PAGE_TOKENS,
                               .n_logits = i % 5 == 4 ? 16 : 0};
    uint64_t s = (uint64_t)i;
    int before = i - 1;
    info.page_hash = rig_random(&s);
    hash_bytes(&i, sizeof(i), info.key);
    hash_bytes(&before, sizeof(before), info.parent);
    memset(info.context, 7, sizeof(info.context));
    for (int t = 0; t < info.n_tokens; t++)
        info.tokens[t] = (int32_t)(rig_random(&s) % 50000);
    return info;
}

/* The body of record i: n bytes. */
static inline void rig_body(int i, uint8_t *out, size_t n)
{
    uint64_t s = (uint64_t)i << 32;
    for (size_t at = 0; at < n; at += 8) {
        uint64_t r = rig_random(&s);
        memcpy(out + at, &r, n - at < 8 ? n - at : 8);
    }
}

static inline size_t rig_size(int i, size_t about)
{
    return about - (size_t)(i % 7) * (about / 16) - (size_t)(i % 3);
}

static inline int rig_write(struct disk *d, int i, size_t about, bool ephemeral)
{
    static uint8_t body[1 << 20];
    struct record_info info = rig_info(i);
    info.ephemeral = ephemeral;
    rig_body(i, body, rig_size(i, about));
    return disk_write(d, &info, body, rig_size(i, about));
}

/* Read record i. Fails the test when anything that comes back is wrong; else what disk_read() returned. */
static inline int rig_read(struct disk *d, int i, size_t about)
{
    static uint8_t body[1 << 20], want[1 << 20];
    struct record_info info = rig_info(i), got;
    struct err e = {0};
    size_t n = 0;
    int rc =
        disk_read(d, info.key, info.tokens, info.n_tokens, &got, body, sizeof(body), &n, &e);
    if (rc != 1)
        return rc;
    rig_body(i, want, rig_size(i, about));
    assert_int_equal(n, rig_size(i, about));
    assert_memory_equal(body, want, n);
    assert_memory_equal(got.key, info.key, HASH_BYTES);
    assert_memory_equal(got.parent, info.parent, HASH_BYTES);
    assert_memory_equal(got.context, info.context, HASH_BYTES);
    assert_memory_equal(got.tokens, info.tokens, (size_t)info.n_tokens * sizeof(int32_t));
    assert_int_equal(got.page_hash, info.page_hash);
    assert_int_equal(got.n_logits, info.n_logits);
    assert_int_equal(got.kind, info.kind);
    assert_int_equal(got.codec, info.codec);
    return 1;
}

static inline struct disk_stats rig_stats(struct disk *d)
{
    struct disk_stats s;
    disk_get_stats(d, &s);
    return s;
}

/* Bytes of blocks of all files in the folder, as du counts them. */
static inline uint64_t rig_blocks(void)
{
    uint64_t sum = 0;
    DIR *dir = opendir(rig_folder);
    assert_non_null(dir);
    for (struct dirent *x; (x = readdir(dir)) != NULL;) {
        struct stat st;
        if (x->d_name[0] != '.' &&
            fstatat(dirfd(dir), x->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            sum += (uint64_t)st.st_blocks * 512;
    }
    closedir(dir);
    return sum;
}

static inline char *rig_path(const char *name)
{
    static char path[4][384];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof(path[0]), "%s/%s", rig_folder, name);
    return p;
}

/* A whole file of the folder, in memory: free() it. */
static inline uint8_t *rig_load(const char *name, size_t *n)
{
    struct stat st;
    int fd = open(rig_path(name), O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    *n = (size_t)st.st_size;
    uint8_t *bytes = malloc(*n + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, *n), *n);
    close(fd);
    return bytes;
}

static inline void rig_store(const char *name, const uint8_t *bytes, size_t n)
{
    int fd = open(rig_path(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

#endif
