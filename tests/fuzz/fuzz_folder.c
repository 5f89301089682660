/* Any bytes as the newest segment of a folder, behind a right head and with the checksums of the heads in it put right:
 * the folder is opened; all that it lists is read, pinned, or removed without a crash; a record written then is read, also
 * after the folder was opened anew; and the limit holds. */
#include "tests/fuzz/fuzz_sums.h"

#include "stages/base/log.h"
#include "stages/kv/disk_look.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CAP = 1 << 16, LIMIT = 1 << 20, BODY = 1 << 20 };

static char folder[64];

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void path_of(const char *name, char out[128])
{
    snprintf(out, 128, "%s/%s", folder, name);
}

static void clean(void)
{
    static const char *const names[] = {"00000000.seg", "00000001.seg", "00000002.seg", "lock",
                                        "uses"};
    char path[128];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        path_of(names[i], path);
        unlink(path);
    }
    rmdir(folder);
}

static void prepare(const uint8_t *data, size_t size)
{
    char path[128];
    if (!*folder) {
        log_set_level(LOG_ERROR);
        /* In memory, where there is such a place: syncs take no time there. */
        snprintf(folder, sizeof(folder), "%s/quire-fuzz-%ld",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
        atexit(clean);
    }
    clean();
    must(mkdir(folder, 0700) == 0);
    path_of("00000000.seg", path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

static bool visit(void *ctx, const struct disk_item *item)
{
    static uint8_t body[BODY];
    struct record_info info;
    struct err e = {0};
    size_t n;
    int rc = disk_read(ctx, item->info.key, item->info.tokens, item->info.n_tokens, &info, body,
                       sizeof(body), &n, &e);
    must(rc == 0 || rc == 1 || rc == -ERR_CORRUPT);
    must(rc != 1 || memcmp(info.key, item->info.key, HASH_BYTES) == 0);
    if (item->info.key[0] % 4 == 0)
        disk_remove(ctx, item->info.key);
    if (item->info.key[0] % 4 == 1)
        disk_pin(ctx, item->info.key, true);
    return true;
}

static void read_new(struct disk *d, const struct record_info *want, const uint8_t *body,
                     size_t n)
{
    uint8_t got[1000];
    struct record_info info;
    struct err e = {0};
    size_t m = 0;
    must(disk_read(d, want->key, want->tokens, want->n_tokens, &info, got, sizeof(got), &m,
                   &e) == 1);
    must(m == n && memcmp(got, body, n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct disk *d;
    struct err e = {0};
    struct disk_options o = {.folder = folder, .limit = LIMIT};
    struct record_info info = {.n_tokens = 3, .tokens = {1, 2, 3}};
    uint8_t body[1000] = "as it was written";
    if (size < SEGMENT_HEAD_BYTES || size > CAP)
        return 0;
    uint8_t *copy = malloc(size);
    must(copy != NULL);
    memcpy(copy, data, size);
    segment_head_put(copy);
    fix_sums(copy, size);
    prepare(copy, size);
    free(copy);
    hash_bytes("new", 3, info.key);
    must(disk_open(&d, &o, &e) == 0);
    disk_each(d, visit, d);
    must(disk_write(d, &info, body, sizeof(body)) < 2);
    read_new(d, &info, body, sizeof(body));
    struct disk_stats t;
    disk_get_stats(d, &t);
    must(t.writing && t.blocks <= LIMIT);
    disk_close(d);
    must(disk_open(&d, &o, &e) == 0);
    read_new(d, &info, body, sizeof(body));
    disk_each(d, visit, d);
    disk_close(d);
    return 0;
}
