#include "stages/rec.h"

#include "stages/base/mem.h"
#include "stages/kv/store.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void strings_free(char **list)
{
    for (char **s = list; s && *s; s++)
        free(*s);
    free(list);
}

static size_t string_memory(const char *s)
{
    return s ? strlen(s) + 1 : 0;
}

static size_t strings_memory(char *const *list)
{
    size_t n = 0;
    for (char *const *s = list; s && *s; s++)
        n += sizeof(*s) + string_memory(*s);
    return n;
}

/* ---- document ---- */

struct doc *doc_new(void)
{
    struct doc *d = mem_need(sizeof(*d));
    atomic_init(&d->refs, 1);
    return d;
}

struct doc *doc_ref(struct doc *d)
{
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    return d;
}

void doc_unref(struct doc *d)
{
    if (!d)
        return;
    int before = atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before != 1)
        return;
    free(d->source);
    strings_free(d->chain);
    free(d->title);
    free(d->media_type);
    free(d->encoding);
    strings_free(d->parts);
    strings_free(d->warnings);
    free(d->text);
    free(d->blocks);
    free(d);
}

size_t doc_memory(const struct doc *d)
{
    return sizeof(*d) + (d->text ? d->text_len + 1 : 0) + d->n_blocks * sizeof(*d->blocks) +
           string_memory(d->source) + string_memory(d->title) + string_memory(d->media_type) +
           string_memory(d->encoding) + strings_memory(d->chain) + strings_memory(d->parts) +
           strings_memory(d->warnings);
}

char *doc_name(const struct doc *d)
{
    size_t n = string_memory(d->source) + 1;
    for (char *const *s = d->chain; s && *s; s++)
        n += string_memory(*s);
    char *out = mem_need(n), *p = stpcpy(out, d->source ? d->source : "");
    for (char *const *s = d->chain; s && *s; s++) {
        *p++ = '/';
        p = stpcpy(p, *s);
    }
    return out;
}

/* ---- envelope ---- */

const char *stopped_by_name(enum stopped_by s)
{
    static const char *const names[STOP_COUNT] = {
        [STOP_NONE] = "none",
        [STOP_EOS] = "eos",
        [STOP_MAX_TOKENS] = "max_tokens",
        [STOP_STRING] = "stop",
        [STOP_REPETITION] = "repetition",
        [STOP_CANCELLED] = "cancelled",
    };
    return (unsigned)s < STOP_COUNT ? names[s] : "unknown";
}

static void info_free(struct summary_info *info)
{
    if (!info)
        return;
    for (int i = 0; i < info->n_parts; i++) {
        free(info->parts[i].heading_path);
        free(info->parts[i].answer.text);
    }
    free(info->parts);
    free(info);
}

struct rec *rec_new(enum rec_kind kind, struct doc *d)
{
    struct rec *r = mem_need(sizeof(*r));
    r->kind = kind;
    r->doc = doc_ref(d);
    return r;
}

void rec_free(struct rec *r)
{
    if (!r)
        return;
    free(r->chunk.heading_path);
    store_drop(r->seq.prompt);
    free(r->req.tokens);
    free(r->seq.logits);
    free(r->answer.text);
    info_free(r->info);
    doc_unref(r->doc);
    free(r);
}

size_t rec_memory(const struct rec *r)
{
    size_t n = sizeof(*r) + string_memory(r->chunk.heading_path) +
               (r->req.tokens ? (size_t)r->req.n_tokens * sizeof(*r->req.tokens) : 0) +
               (r->answer.text ? r->answer.len + 1 : 0);
    if (r->info) {
        n += sizeof(*r->info);
        for (int i = 0; i < r->info->n_parts; i++)
            n += sizeof(*r->info->parts) + string_memory(r->info->parts[i].heading_path) +
                 r->info->parts[i].answer.len + 1;
    }
    return n;
}
