#include "stages/write/manifest.h"

#include "stages/base/mem.h"

#include <stdlib.h>
#include <string.h>

void manifest_release(struct manifest *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->entries[i].name);
    free(m->entries);
    *m = (struct manifest){0};
}

bool manifest_name_ok(const char *name)
{
    static const char *const fixed[] = {"results.jsonl", "run.json", "job.resolved.yaml"};
    static const char folder[] = "summaries/";
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        if (strcmp(name, fixed[i]) == 0)
            return true;
    if (strncmp(name, folder, sizeof(folder) - 1) != 0)
        return false;
    const char *s = name + sizeof(folder) - 1;
    size_t stem = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return stem > 0 && stem <= 200 && strcmp(s + stem, ".md") == 0;
}

int manifest_add(struct manifest *m, const char *name, const uint8_t sha256[HASH_BYTES],
                 struct err *e)
{
    if (m->n == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 16, bytes;
        struct manifest_entry *p =
            size_mul(cap, sizeof(*p), &bytes) ? mem_resize(m->entries, bytes) : NULL;
        if (!p)
            return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for a manifest of %zu files",
                           cap);
        m->entries = p;
        m->cap = cap;
    }
    struct manifest_entry *entry = &m->entries[m->n++];
    entry->name = mem_strdup(name);
    memcpy(entry->sha256, sha256, HASH_BYTES);
    return 0;
}

int manifest_print(const struct manifest *m, struct buf *out, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < m->n && !rc; i++) {
        char hex[HASH_HEX];
        hash_hex(m->entries[i].sha256, hex);
        rc = buf_addf(out, e, "%s  %s\n", hex, m->entries[i].name);
    }
    return rc;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One line without its newline. */
static int parse_line(struct manifest *m, const char *s, size_t len, size_t line, struct err *e)
{
    enum { HEX = 2 * HASH_BYTES, NAME_MAX_BYTES = 255 };
    uint8_t digest[HASH_BYTES];
    char name[NAME_MAX_BYTES + 1];
    if (len < HEX + 3 || len - HEX - 2 > NAME_MAX_BYTES || s[HEX] != ' ' || s[HEX + 1] != ' ')
        return err_set(e, REACH_JOB, ERR_FORMAT, "line %zu is not \"checksum  name\"", line);
    for (int i = 0; i < HASH_BYTES; i++) {
        int hi = hex_value(s[2 * i]), lo = hex_value(s[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return err_set(e, REACH_JOB, ERR_FORMAT, "line %zu: not a checksum", line);
        digest[i] = (uint8_t)(hi << 4 | lo);
    }
    size_t n = len - HEX - 2;
    memcpy(name, s + HEX + 2, n);
    name[n] = '\0';
    if (strlen(name) != n || !manifest_name_ok(name))
        return err_set(e, REACH_JOB, ERR_FORMAT, "line %zu: not a file of this program", line);
    return manifest_add(m, name, digest, e);
}

int manifest_parse(struct manifest *m, const char *text, size_t len, struct err *e)
{
    size_t line = 0;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - (text + at)) : len - at;
        int rc = parse_line(m, text + at, n, ++line, e);
        if (rc)
            return rc;
        at += n + 1;
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct manifest_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void manifest_missing(const struct manifest *old, struct manifest *now,
                      void (*gone)(void *ctx, const char *name), void *ctx)
{
    if (now->n)
        qsort(now->entries, now->n, sizeof(*now->entries), by_name);
    for (size_t i = 0; i < old->n; i++)
        if (!now->n ||
            !bsearch(&old->entries[i], now->entries, now->n, sizeof(*now->entries), by_name))
            gone(ctx, old->entries[i].name);
}
