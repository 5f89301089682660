/* quire diff: what two runs over the same documents say differently. */
#include "pipeline/cmd.h"

#include "stages/base/file.h"
#include "stages/base/hash.h"
#include "stages/base/mem.h"
#include "stages/write/lines.h"
#include "stages/write/result_line.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One record, as far as it is compared. */
struct entry {
    char id[33];
    size_t at; /* line of its file */
    enum doc_status status;
    char *code; /* of a failure, else "" */
    uint8_t answer[HASH_BYTES];
    char *name;
    const struct entry *peer; /* in the other run; NULL: only here */
};

struct side {
    struct entry *entries; /* by id, then by line */
    size_t n, cap;
    int64_t bad; /* lines that are no records */
    size_t line;
};

static void release(struct side *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->entries[i].name);
        free(s->entries[i].code);
    }
    free(s->entries);
}

static void hash_value(struct hash *h, const json_t *record, const char *key)
{
    const json_t *v = json_object_get(record, key);
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS) : NULL;
    hash_field(h, key, text ? text : "", text ? strlen(text) : 0);
    free(text);
}

/* line_fn */
static int take(void *to, const char *text, size_t n, struct err *e)
{
    struct side *s = to;
    struct result_line l;
    struct err bad = {0};
    size_t line = ++s->line;
    if (result_line_parse(&l, text, n, &bad) != 0) {
        s->bad++;
        return 0;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 256;
        struct entry *more = mem_resize(s->entries, cap * sizeof(*more));
        if (!more) {
            result_line_release(&l);
            return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for %zu records", cap);
        }
        s->entries = more;
        s->cap = cap;
    }
    struct entry *x = &s->entries[s->n++];
    *x = (struct entry){.at = line,
                        .status = l.status,
                        .code = mem_strdup(l.code),
                        .name = result_line_name(&l)};
    memcpy(x->id, l.id, sizeof(x->id));
    struct hash h;
    hash_init(&h);
    hash_value(&h, l.json, "answer");
    hash_value(&h, l.json, "answers");
    hash_end(&h, x->answer);
    result_line_release(&l);
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = strcmp(x->id, y->id);
    return c ? c : (x->at > y->at) - (x->at < y->at);
}

/* Of a folder: its results, or those of a run that is not finished. */
static int open_results(const char *path, char **name, struct err *e)
{
    static const char *const inside[] = {"results.jsonl", "results.jsonl.partial"};
    struct stat st;
    int fd = -1;
    *name = mem_strdup(path);
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    for (size_t i = 0; i < (folder ? ARRAY_LEN(inside) : 1) && fd < 0; i++) {
        free(*name);
        *name = folder ? file_join(path, inside[i]) : mem_strdup(path);
        fd = open(*name, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0)
        err_set(e, REACH_JOB, ERR_IO, "cannot open \"%s\": %s", *name, strerror(errno));
    return fd;
}

static int load(struct side *s, const char *path, struct err *e)
{
    char *name;
    int fd = open_results(path, &name, e);
    int rc = fd < 0 ? -(int)e->code : lines_read(fd, name, take, s, e);
    if (fd >= 0)
        close(fd);
    if (!rc && s->n > 1)
        qsort(s->entries, s->n, sizeof(*s->entries), by_id);
    if (!rc && s->n == 0 && s->bad > 0)
        rc = err_set(e, REACH_JOB, ERR_FORMAT, "\"%s\" has no records of quire", name);
    free(name);
    return rc;
}

static int say_status(struct buf *out, const struct entry *a, const struct entry *b,
                      struct err *e)
{
    static const char *const words[] = {"ok", "partial", "failed"};
    return buf_addf(out, e, "status  %s: %s%s%s -> %s%s%s\n", a->name, words[a->status],
                    a->code[0] ? " " : "", a->code, words[b->status], b->code[0] ? " " : "",
                    b->code);
}

/* 0: nothing to say. */
static int compare(struct buf *out, const struct entry *a, const struct entry *b, bool *differ,
                   struct err *e)
{
    int rc = 0;
    if (a->status != b->status || strcmp(a->code, b->code) != 0)
        rc = say_status(out, a, b, e);
    else if (memcmp(a->answer, b->answer, HASH_BYTES) != 0)
        rc = buf_addf(out, e, "answer  %s: lines %zu and %zu\n", a->name, a->at, b->at);
    else
        return 0;
    *differ = true;
    return rc;
}

static void pair(struct side *a, struct side *b)
{
    for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
        int c = strcmp(a->entries[i].id, b->entries[k].id);
        if (c == 0) {
            a->entries[i].peer = &b->entries[k];
            b->entries[k].peer = &a->entries[i];
        }
        i += c <= 0;
        k += c >= 0;
    }
}

static int by_line(const void *a, const void *b)
{
    const struct entry *const *x = a, *const *y = b;
    return ((*x)->at > (*y)->at) - ((*x)->at < (*y)->at);
}

/* The records of a side in the order of its file; heap. */
static const struct entry **in_order(const struct side *s)
{
    const struct entry **list = mem_need((s->n + 1) * sizeof(*list));
    for (size_t i = 0; i < s->n; i++)
        list[i] = &s->entries[i];
    qsort(list, s->n, sizeof(*list), by_line);
    return list;
}

static int say_all(const struct side *a, const struct side *b, struct buf *out, bool *differ,
                   struct err *e)
{
    const struct entry **first = in_order(a), **second = in_order(b);
    int rc = 0;
    for (size_t i = 0; i < a->n && !rc; i++) {
        *differ |= !first[i]->peer;
        rc = first[i]->peer ? compare(out, first[i], first[i]->peer, differ, e)
                            : buf_addf(out, e, "first   %s: only there\n", first[i]->name);
    }
    for (size_t i = 0; i < b->n && !rc; i++) {
        *differ |= !second[i]->peer;
        if (!second[i]->peer)
            rc = buf_addf(out, e, "second  %s: only there\n", second[i]->name);
    }
    free(first);
    free(second);
    return rc;
}

int cmd_diff(const struct cmd_line *l)
{
    struct err e = {0};
    struct side a = {0}, b = {0};
    struct buf out;
    bool differ = false;
    buf_init(&out, (size_t)1 << 30);
    int rc = load(&a, l->args[0], &e);
    if (!rc)
        rc = load(&b, l->args[1], &e);
    pair(&a, &b);
    if (!rc)
        rc = say_all(&a, &b, &out, &differ, &e);
    if (!rc && a.bad + b.bad > 0) {
        differ = true;
        rc = buf_addf(&out, &e, "lines that are no records: %" PRId64 " and %" PRId64 "\n",
                      a.bad, b.bad);
    }
    release(&a);
    release(&b);
    int status = cmd_print(&out, rc, &e);
    return status ? status : differ ? EXIT_SOME : EXIT_ALL;
}
