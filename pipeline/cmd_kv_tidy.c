/* quire kv verify, gc, pin, unpin: what changes a folder of KV pages. */
#include "pipeline/cmd_kv.h"

#include "stages/base/mem.h"
#include "stages/base/opt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- verify ---- */

struct verify {
    struct disk *d;
    uint8_t *body;
    size_t cap;
    int64_t right, damaged, gone, unreadable;
    uint64_t bytes;
    struct err *e;
};

static bool verify_item(void *ctx, const struct disk_item *item)
{
    struct verify *v = ctx;
    struct record_info info;
    struct err e = {0};
    size_t n = 0;
    if (item->bytes > v->cap) {
        uint8_t *more = mem_resize(v->body, item->bytes);
        if (!more) {
            err_set(v->e, REACH_JOB, ERR_NOMEM, "no memory for a record of %" PRIu64 " bytes",
                    item->bytes);
            return false;
        }
        v->body = more;
        v->cap = item->bytes;
    }
    int rc = disk_read(v->d, item->info.key, NULL, 0, &info, v->body, v->cap, &n, &e);
    if (rc == 1) {
        v->right++;
        v->bytes += n;
        return true;
    }
    if (rc == 0) {
        v->gone++; /* another process has removed it since */
        return true;
    }
    v->damaged += rc == -ERR_CORRUPT;
    v->unreadable += rc != -ERR_CORRUPT;
    fprintf(stderr, "quire: %s\n", e.msg);
    return true;
}

int cmd_kv_verify(const struct cmd_line *l)
{
    struct err e = {0};
    struct verify v = {.e = &e};
    struct disk_stats before;
    if (cmd_kv_open(l, false, &v.d, &e))
        return cmd_fail(&e);
    disk_get_stats(v.d, &before);
    disk_each(v.d, verify_item, &v);
    disk_close(v.d);
    free(v.body);
    if (e.code)
        return cmd_fail(&e);
    char bytes[32];
    cmd_kv_bytes(v.bytes, bytes, sizeof(bytes));
    struct buf out;
    buf_init(&out, CMD_TEXT);
    int rc = buf_addf(&out, &e,
                      "%" PRId64 " records are as they were written (%s), %" PRId64
                      " are damaged, %" PRId64 " cannot be read\n",
                      v.right, bytes, v.damaged + before.corrupt, v.unreadable);
    int status = cmd_print(&out, rc, &e);
    if (status || v.damaged + before.corrupt + v.unreadable == 0)
        return status;
    fprintf(stderr,
            "quire: what is damaged is not used any more: the next run computes it again. "
            "Damage comes from the disk,\n"
            "the memory, or a file that was changed by hand; \"quire kv gc %s --all\" starts "
            "afresh.\n",
            l->args[1]);
    return EXIT_SOME;
}

/* ---- gc ---- */

struct gc {
    struct disk *d;
    struct kv_choice choice;
    bool all, dry_run;
    int64_t older_than, now; /* seconds; older_than -1: not asked for */
    int64_t removed;
    uint64_t bytes;
};

/* "30d", "12h", "90min", "45s" as seconds. */
static int read_age(const char *text, int64_t *out, struct err *e)
{
    static const struct {
        const char *name;
        int64_t seconds;
    } units[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}};
    char *end;
    long long n = strtoll(text, &end, 10);
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (*text >= '0' && *text <= '9' && n <= 100000 && strcmp(end, units[i].name) == 0) {
            *out = n * units[i].seconds;
            return 0;
        }
    return err_set(e, REACH_JOB, ERR_CONFIG,
                   "--older-than: \"%.40s\" is not a time such as 30d, 12h, 90min or 45s",
                   text);
}

static bool gc_item(void *ctx, const struct disk_item *item)
{
    struct gc *g = ctx;
    int64_t used = item->last_used > item->written ? item->last_used : item->written;
    bool asked = g->all || g->older_than >= 0 || g->choice.context;
    bool goes = asked && cmd_kv_chosen(&g->choice, &item->info) &&
                (g->older_than < 0 || g->now - used > g->older_than) && !item->pinned &&
                !item->info.ephemeral;
    if (!goes && !item->abandoned)
        return true;
    if (!g->dry_run)
        disk_remove(g->d, item->info.key);
    struct disk_stats after;
    disk_get_stats(g->d, &after);
    if (!g->dry_run && (!after.writing || disk_has(g->d, item->info.key)))
        return after.writing; /* it stays; once nothing can be written, all do */
    g->removed++;
    g->bytes += item->bytes;
    return true;
}

static int read_gc(const struct cmd_line *l, struct gc *g, uint64_t *limit, struct err *e)
{
    static const struct opt limit_opt = {"limit", OPT_BYTES, 0, "0", 0, 0x1p50, NULL, 0, ""};
    const char *age = cmd_value(l, "--older-than", 0), *most = cmd_value(l, "--limit", 0);
    *g = (struct gc){.now = time(NULL),
                     .older_than = -1,
                     .all = cmd_value(l, "--all", 0) != NULL,
                     .dry_run = cmd_value(l, "--dry-run", 0) != NULL};
    *limit = UINT64_MAX;
    int rc = cmd_kv_choice(l, &g->choice, e);
    if (!rc && age)
        rc = read_age(age, &g->older_than, e);
    if (!rc && most && opt_set(&limit_opt, limit, most, ".", e))
        rc = err_wrap(e, "--limit");
    return rc;
}

static int print_gc(const struct gc *g, int64_t evicted, uint64_t over, struct buf *out,
                    struct err *e)
{
    char bytes[32], more[32];
    cmd_kv_bytes(g->bytes, bytes, sizeof(bytes));
    cmd_kv_bytes(over, more, sizeof(more));
    if (g->dry_run)
        return buf_addf(out, e, "would remove %" PRId64 " records (%s)%s%s%s\n", g->removed,
                        bytes, over ? ", and then what is worth least until " : "",
                        over ? more : "", over ? " more are free" : "");
    return buf_addf(out, e, "removed %" PRId64 " records\n", g->removed + evicted);
}

int cmd_kv_gc(const struct cmd_line *l)
{
    struct err e = {0};
    struct gc g;
    uint64_t limit, over = 0;
    int64_t evicted = 0;
    struct disk *d;
    struct disk_stats t;
    if (read_gc(l, &g, &limit, &e))
        return cmd_fail(&e);
    if (cmd_kv_open(l, g.dry_run, &d, &e))
        return cmd_fail(&e);
    g.d = d;
    disk_get_stats(d, &t);
    if (!g.dry_run && !t.writing) {
        disk_close(d);
        err_set(&e, REACH_JOB, ERR_IO, "\"%s\" cannot be written", l->args[1]);
        return cmd_fail(&e);
    }
    disk_each(d, gc_item, &g);
    if (g.dry_run && (uint64_t)t.blocks > limit && (uint64_t)t.blocks - limit > g.bytes)
        over = (uint64_t)t.blocks - limit - g.bytes;
    if (!g.dry_run && limit != UINT64_MAX)
        evicted = disk_trim(d, limit);
    disk_close(d);
    struct buf out;
    buf_init(&out, CMD_TEXT);
    int rc = print_gc(&g, evicted, over, &out, &e);
    return cmd_print(&out, rc, &e);
}

/* ---- pin, unpin ---- */

struct page {
    uint8_t key[HASH_BYTES], parent[HASH_BYTES];
    bool chosen;
};

struct pages {
    struct kv_choice choice;
    struct page *list;
    size_t n, cap, n_chosen;
    bool failed;
};

static bool add_page(void *ctx, const struct disk_item *item)
{
    struct pages *p = ctx;
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        struct page *more = mem_resize(p->list, cap * sizeof(*more));
        if (!more) {
            p->failed = true;
            return false;
        }
        p->list = more;
        p->cap = cap;
    }
    struct page *page = &p->list[p->n++];
    memcpy(page->key, item->info.key, HASH_BYTES);
    memcpy(page->parent, item->info.parent, HASH_BYTES);
    page->chosen = cmd_kv_chosen(&p->choice, &item->info);
    p->n_chosen += page->chosen;
    return true;
}

static int by_key(const void *a, const void *b)
{
    return memcmp(((const struct page *)a)->key, ((const struct page *)b)->key, HASH_BYTES);
}

/* A page is found only by way of those before it, so these are chosen, too. */
static void choose_parents(struct pages *p)
{
    if (p->n == 0)
        return;
    qsort(p->list, p->n, sizeof(p->list[0]), by_key);
    for (size_t i = 0; i < p->n; i++) {
        struct page *page = &p->list[i], wanted;
        while (page && page->chosen) {
            memcpy(wanted.key, page->parent, HASH_BYTES);
            page = bsearch(&wanted, p->list, p->n, sizeof(p->list[0]), by_key);
            if (!page || page->chosen)
                break;
            page->chosen = true;
            p->n_chosen++;
        }
    }
}

static int set_pins(const struct cmd_line *l, bool pinned)
{
    struct err e = {0};
    struct pages p = {.n = 0};
    struct disk *d;
    struct disk_stats t;
    if (cmd_kv_choice(l, &p.choice, &e))
        return cmd_fail(&e);
    if (!p.choice.context && !p.choice.key && !cmd_value(l, "--all", 0)) {
        err_set(&e, REACH_JOB, ERR_CONFIG,
                "kv %s needs --context, --key or --all: \"quire kv list\" prints them",
                l->args[0]);
        return cmd_fail(&e);
    }
    if (cmd_kv_open(l, false, &d, &e))
        return cmd_fail(&e);
    disk_each(d, add_page, &p);
    if (pinned)
        choose_parents(&p);
    for (size_t i = 0; i < p.n; i++)
        if (p.list[i].chosen)
            disk_pin(d, p.list[i].key, pinned);
    disk_get_stats(d, &t);
    disk_close(d);
    free(p.list);
    if (p.failed)
        err_set(&e, REACH_JOB, ERR_NOMEM, "no memory for so many keys");
    else if (!t.writing)
        err_set(&e, REACH_JOB, ERR_IO, "\"%s\" cannot be written", l->args[1]);
    else if (p.n_chosen == 0)
        err_set(&e, REACH_JOB, ERR_IO, "\"%s\" has no such record", l->args[1]);
    if (e.code)
        return cmd_fail(&e);
    struct buf out;
    buf_init(&out, CMD_TEXT);
    int rc = buf_addf(&out, &e, "%s %zu records\n", pinned ? "pinned" : "unpinned", p.n_chosen);
    return cmd_print(&out, rc, &e);
}

int cmd_kv_pin(const struct cmd_line *l)
{
    return set_pins(l, true);
}

int cmd_kv_unpin(const struct cmd_line *l)
{
    return set_pins(l, false);
}
