/* quire kv list, quire kv stats: what a folder of KV pages holds. Nothing is changed. */
#include "pipeline/cmd_kv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SHOWN_KEY = 16, WRITE_BYTES = 1 << 16 };

int cmd_kv_open(const struct cmd_line *l, bool read_only, struct disk **d, struct err *e)
{
    const char *folder = l->args[1];
    if (!disk_is_store(folder))
        return err_set(e, REACH_JOB, ERR_IO, "\"%s\" is not a folder of KV pages", folder);
    return disk_open(d, &(struct disk_options){.folder = folder, .read_only = read_only}, e);
}

int cmd_kv_choice(const struct cmd_line *l, struct kv_choice *c, struct err *e)
{
    c->context = cmd_value(l, "--context", 0);
    c->key = cmd_value(l, "--key", 0);
    const char *given[] = {c->context, c->key}, *names[] = {"--context", "--key"};
    for (size_t i = 0; i < ARRAY_LEN(given); i++)
        if (given[i] && (!*given[i] || strlen(given[i]) >= HASH_HEX ||
                         strspn(given[i], "0123456789abcdef") != strlen(given[i])))
            return err_set(e, REACH_JOB, ERR_CONFIG,
                           "%s: \"%.70s\" is not 1 to %d hexadecimal digits", names[i],
                           given[i], HASH_HEX - 1);
    return 0;
}

static bool begins(const uint8_t digest[HASH_BYTES], const char *with)
{
    char hex[HASH_HEX];
    hash_hex(digest, hex);
    return !with || strncmp(hex, with, strlen(with)) == 0;
}

bool cmd_kv_chosen(const struct kv_choice *c, const struct record_info *info)
{
    return begins(info->context, c->context) && begins(info->key, c->key);
}

void cmd_kv_age(int64_t seconds, char *out, size_t cap)
{
    static const struct {
        const char *name;
        int64_t seconds;
    } units[] = {{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}};
    size_t i = 0;
    if (seconds < 0)
        seconds = 0; /* the clock was set back */
    while (i + 1 < ARRAY_LEN(units) && seconds < 2 * units[i].seconds)
        i++;
    snprintf(out, cap, "%" PRId64 " %s", seconds / units[i].seconds, units[i].name);
}

void cmd_kv_bytes(uint64_t n, char *out, size_t cap)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)n;
    size_t i = 0;
    for (; i + 1 < ARRAY_LEN(units) && v >= 1024; i++)
        v /= 1024;
    snprintf(out, cap, i ? "%.1f %s" : "%.0f %s", v, units[i]);
}

/* ---- list ---- */

struct list {
    struct kv_choice choice;
    struct buf out;
    struct err *e;
    int64_t now;
    bool json;
    int rc;
};

static const char *kind_name(enum record_kind kind)
{
    return kind == RECORD_TAIL ? "tail" : "page";
}

static int item_text(struct list *x, const struct disk_item *item)
{
    char key[HASH_HEX], context[HASH_HEX], bytes[32], age[24], used[24] = "-";
    hash_hex(item->info.key, key);
    hash_hex(item->info.context, context);
    cmd_kv_bytes(item->bytes, bytes, sizeof(bytes));
    cmd_kv_age(x->now - item->written, age, sizeof(age));
    if (item->last_used)
        cmd_kv_age(x->now - item->last_used, used, sizeof(used));
    return buf_addf(&x->out, x->e, "%.*s %.8s %-4s %6d %-8s %12s %8s %8s %4d %s\n", SHOWN_KEY,
                    key, context, kind_name(item->info.kind), item->info.n_tokens,
                    codec_name(item->info.codec), bytes, age, used, item->n_uses,
                    item->pinned           ? "pinned"
                    : item->abandoned      ? "abandoned"
                    : item->info.ephemeral ? "spilled"
                                           : "kept");
}

static int item_json(struct list *x, const struct disk_item *item)
{
    char key[HASH_HEX], parent[HASH_HEX], context[HASH_HEX];
    hash_hex(item->info.key, key);
    hash_hex(item->info.parent, parent);
    hash_hex(item->info.context, context);
    return buf_addf(&x->out, x->e,
                    "{\"key\": \"%s\", \"parent\": \"%s\", \"context\": \"%s\", \"kind\": "
                    "\"%s\", \"tokens\": %d, \"codec\": \"%s\", \"bytes\": %" PRIu64
                    ", \"written\": %" PRIu32 ", \"last_used\": %" PRIu32
                    ", \"uses\": %d, \"pinned\": %s, \"spilled\": %s, \"abandoned\": %s}\n",
                    key, parent, context, kind_name(item->info.kind), item->info.n_tokens,
                    codec_name(item->info.codec), item->bytes, item->written, item->last_used,
                    item->n_uses, item->pinned ? "true" : "false",
                    item->info.ephemeral ? "true" : "false",
                    item->abandoned ? "true" : "false");
}

static bool list_item(void *ctx, const struct disk_item *item)
{
    struct list *x = ctx;
    if (!cmd_kv_chosen(&x->choice, &item->info))
        return true;
    x->rc = x->json ? item_json(x, item) : item_text(x, item);
    if (!x->rc && x->out.len > WRITE_BYTES) {
        if (fwrite(x->out.data, 1, x->out.len, stdout) != x->out.len)
            x->rc = err_set(x->e, REACH_JOB, ERR_IO, "cannot write to standard output: %s",
                            strerror(errno));
        buf_clear(&x->out);
    }
    return x->rc == 0;
}

int cmd_kv_list(const struct cmd_line *l)
{
    struct err e = {0};
    struct disk *d;
    struct list x = {.e = &e, .now = time(NULL), .json = cmd_value(l, "--json", 0) != NULL};
    if (cmd_kv_choice(l, &x.choice, &e) || cmd_kv_open(l, true, &d, &e))
        return cmd_fail(&e);
    buf_init(&x.out, CMD_TEXT);
    if (!x.json)
        x.rc = buf_addf(&x.out, &e, "%-*s %-8s %-4s %6s %-8s %12s %8s %8s %4s %s\n", SHOWN_KEY,
                        "key", "context", "kind", "tokens", "codec", "bytes", "age", "used",
                        "uses", "state");
    if (!x.rc)
        disk_each(d, list_item, &x);
    disk_close(d);
    return cmd_print(&x.out, x.rc, &e);
}

/* ---- stats ---- */

struct sums {
    int64_t pages, tails, tokens, pinned, spilled, abandoned, used;
    uint32_t oldest, newest;
};

static bool sum_item(void *ctx, const struct disk_item *item)
{
    struct sums *s = ctx;
    s->pages += item->info.kind == RECORD_PAGE;
    s->tails += item->info.kind == RECORD_TAIL;
    s->tokens += item->info.n_tokens;
    s->pinned += item->pinned;
    s->spilled += item->info.ephemeral && !item->abandoned;
    s->abandoned += item->abandoned;
    s->used += item->n_uses > 1;
    if (!s->oldest || item->written < s->oldest)
        s->oldest = item->written;
    if (item->written > s->newest)
        s->newest = item->written;
    return true;
}

static int stats_text(const struct disk_stats *t, const struct sums *s, struct buf *out,
                      struct err *e)
{
    char bytes[32], blocks[32], oldest[24], newest[24];
    int64_t now = time(NULL);
    cmd_kv_bytes((uint64_t)t->bytes, bytes, sizeof(bytes));
    cmd_kv_bytes((uint64_t)t->blocks, blocks, sizeof(blocks));
    cmd_kv_age(now - s->oldest, oldest, sizeof(oldest));
    cmd_kv_age(now - s->newest, newest, sizeof(newest));
    int rc =
        buf_addf(out, e,
                 "records   %" PRId64 ": %" PRId64 " pages, %" PRId64
                 " ends of prompts; %" PRId64 " tokens\n"
                 "bytes     %s in %" PRId64 " segments that occupy %s\n"
                 "state     %" PRId64 " pinned, %" PRId64 " spilled by living runs, %" PRId64
                 " abandoned by dead ones\n"
                 "reused    %" PRId64 " came back six hours after their first use, or later\n",
                 t->records, s->pages, s->tails, s->tokens, bytes, t->segments, blocks,
                 s->pinned, s->spilled, s->abandoned, s->used);
    if (!rc && t->records)
        rc = buf_addf(out, e, "age       oldest %s, newest %s\n", oldest, newest);
    if (!rc && t->corrupt)
        rc = buf_addf(out, e, "damaged   %" PRId64 " places that hold no record any more\n",
                      t->corrupt);
    return rc;
}

static int stats_json(const struct disk_stats *t, const struct sums *s, struct buf *out,
                      struct err *e)
{
    return buf_addf(
        out, e,
        "{\"records\": %" PRId64 ", \"pages\": %" PRId64 ", \"tails\": %" PRId64
        ", \"tokens\": %" PRId64 ", \"bytes\": %" PRId64 ", \"segments\": %" PRId64
        ", \"blocks\": %" PRId64 ", \"pinned\": %" PRId64 ", \"spilled\": %" PRId64
        ", \"abandoned\": %" PRId64 ", \"reused\": %" PRId64 ", \"oldest\": %" PRIu32
        ", \"newest\": %" PRIu32 ", \"damaged\": %" PRId64 "}\n",
        t->records, s->pages, s->tails, s->tokens, t->bytes, t->segments, t->blocks, s->pinned,
        s->spilled, s->abandoned, s->used, s->oldest, s->newest, t->corrupt);
}

int cmd_kv_stats(const struct cmd_line *l)
{
    struct err e = {0};
    struct disk *d;
    struct sums s = {0};
    struct disk_stats t;
    struct buf out;
    if (cmd_kv_open(l, true, &d, &e))
        return cmd_fail(&e);
    disk_each(d, sum_item, &s);
    disk_get_stats(d, &t);
    disk_close(d);
    buf_init(&out, CMD_TEXT);
    int rc = (cmd_value(l, "--json", 0) ? stats_json : stats_text)(&t, &s, &out, &e);
    return cmd_print(&out, rc, &e);
}
