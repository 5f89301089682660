/* A line is found by comparing its text with the text that it must have: only the two digests are read. */
#include "stages/model/digest_cache.h"

#include "stages/base/log.h"
#include "stages/base/sys.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CHECK_DIGITS = 16,
    DIGEST_DIGITS = 2 * HASH_BYTES,
    ID_DIGITS = 5 * 17 - 1,
    AT_ID = CHECK_DIGITS + 1,
    AT_FILE = AT_ID + ID_DIGITS + 1,
    AT_WEIGHTS = AT_FILE + DIGEST_DIGITS + 1,
    AT_PATH = AT_WEIGHTS + DIGEST_DIGITS + 1,
    LINES_MAX = 256,
    CACHE_MAX = LINES_MAX * (AT_PATH + PATH_MAX + 1)
};
static const int64_t racy_ns = INT64_C(2000000000);

/* The whole path; false for one that a line cannot hold. */
static bool full_path(const char *path, char out[PATH_MAX])
{
    if (!realpath(path, out))
        return false;
    for (const unsigned char *c = (const unsigned char *)out; *c; c++)
        if (*c < ' ' || *c == 0x7f)
            return false;
    return true;
}

/* Appends the file's text when it is a cache of ours. */
static bool read_ours(const char *path, struct buf *text)
{
    struct err e = {0};
    const char *why;
    uint64_t size;
    int fd = file_open_own(path, &size, &why);
    bool ours = fd >= 0 && size < CACHE_MAX;
    char block[16 * 1024];
    long n = 0;
    while (ours && (n = sys_read(fd, block, sizeof(block))) > 0)
        ours = buf_add(text, block, (size_t)n, &e) == 0;
    if (fd >= 0)
        close(fd);
    return ours && n == 0;
}

/* The first bytes of a line, from all that follow them. */
static void check_of(const char *rest, size_t n, char out[CHECK_DIGITS + 1])
{
    uint8_t digest[HASH_BYTES];
    char hex[HASH_HEX];
    hash_bytes(rest, n, digest);
    hash_hex(digest, hex);
    memcpy(out, hex, CHECK_DIGITS);
    out[CHECK_DIGITS] = '\0';
}

static bool is_sound(const char *line, size_t n)
{
    char check[CHECK_DIGITS + 1];
    if (n <= AT_PATH || line[AT_ID - 1] != ' ' || line[AT_PATH] != '/')
        return false;
    check_of(line + AT_ID, n - AT_ID, check);
    return memcmp(line, check, CHECK_DIGITS) == 0;
}

static void id_text(const struct file_id *id, char out[ID_DIGITS + 1])
{
    snprintf(out, ID_DIGITS + 1,
             "%016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64, id->dev,
             id->ino, id->size, (uint64_t)id->mtime_ns, (uint64_t)id->ctime_ns);
}

static bool read_digest(const char *hex, uint8_t out[HASH_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < HASH_BYTES; i++) {
        const char *high = memchr(digits, hex[2 * i], 16),
                   *low = memchr(digits, hex[2 * i + 1], 16);
        if (!high || !low)
            return false;
        out[i] = (uint8_t)((high - digits) * 16 + (low - digits));
    }
    return true;
}

/* The next sound line from *at on, without its newline; NULL at the end. */
static const char *next_line(const struct buf *text, size_t *at, size_t *n)
{
    while (*at < text->len) {
        const char *line = text->data + *at, *end = memchr(line, '\n', text->len - *at);
        if (!end)
            return NULL; /* torn */
        *n = (size_t)(end - line);
        *at += *n + 1;
        if (is_sound(line, *n))
            return line;
    }
    return NULL;
}

static bool has_path(const char *line, size_t n, const char *path)
{
    return n - AT_PATH == strlen(path) && memcmp(line + AT_PATH, path, n - AT_PATH) == 0;
}

bool digest_cache_find(const char *path, const struct file_id *id, struct model_digests *out)
{
    char full[PATH_MAX], want[ID_DIGITS + 1];
    char *folder = file_cache_folder(), *file = folder ? file_join(folder, "digests") : NULL;
    struct model_digests d;
    struct buf text;
    bool found = false;
    buf_init(&text, CACHE_MAX);
    id_text(id, want);
    if (file && full_path(path, full) && read_ours(file, &text)) {
        size_t n, at = 0;
        for (const char *line; !found && (line = next_line(&text, &at, &n)) != NULL;)
            found = has_path(line, n, full) && memcmp(line + AT_ID, want, ID_DIGITS) == 0 &&
                    read_digest(line + AT_FILE, d.file) &&
                    read_digest(line + AT_WEIGHTS, d.weights);
    }
    if (found)
        *out = d;
    buf_release(&text);
    free(file);
    free(folder);
    return found;
}

static int add_line(struct buf *out, const char *path, const struct file_id *id,
                    const struct model_digests *d, struct err *e)
{
    char ids[ID_DIGITS + 1], file[HASH_HEX], weights[HASH_HEX], check[CHECK_DIGITS + 1];
    struct buf rest;
    buf_init(&rest, AT_PATH + PATH_MAX);
    id_text(id, ids);
    hash_hex(d->file, file);
    hash_hex(d->weights, weights);
    int rc = buf_addf(&rest, e, "%s %s %s %s", ids, file, weights, path);
    if (!rc) {
        check_of(rest.data, rest.len, check);
        rc = buf_addf(out, e, "%s %s\n", check, rest.data);
    }
    buf_release(&rest);
    return rc;
}

/* The sound lines of other paths, behind the new one. */
static int keep_others(struct buf *out, const struct buf *old, const char *path, struct err *e)
{
    size_t n, at = 0;
    int rc = 0, lines = 1;
    for (const char *line;
         !rc && lines < LINES_MAX && (line = next_line(old, &at, &n)) != NULL;) {
        if (has_path(line, n, path))
            continue;
        rc = buf_add(out, line, n + 1, e);
        lines++;
    }
    return rc;
}

void digest_cache_put(const char *path, const struct file_id *id, int64_t hashed_ns,
                      const struct model_digests *d)
{
    char full[PATH_MAX];
    char *folder = file_cache_folder(), *file = folder ? file_join(folder, "digests") : NULL;
    int64_t changed = id->mtime_ns > id->ctime_ns ? id->mtime_ns : id->ctime_ns;
    struct err e = {0};
    struct buf old, now;
    buf_init(&old, CACHE_MAX);
    buf_init(&now, CACHE_MAX);
    if (file && full_path(path, full) && changed <= hashed_ns - racy_ns) {
        if (!read_ours(file, &old))
            buf_clear(&old);
        int rc = add_line(&now, full, id, d, &e);
        rc = rc ? rc : keep_others(&now, &old, full, &e);
        rc = rc ? rc : file_make_dirs(folder, &e);
        rc = rc ? rc : file_write_atomic(file, now.data, now.len, &e);
        if (rc)
            log_debug("model", "digest not remembered: %s", e.msg);
    }
    buf_release(&now);
    buf_release(&old);
    free(file);
    free(folder);
}
