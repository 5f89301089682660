#include "stages/ingest/keep.h"

#include "stages/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = ISOLATE_AHEAD + 1 };

static void hash_list(struct hash *h, const char *tag, const struct opt_list *l)
{
    hash_field_u64(h, tag, l->n);
    for (size_t i = 0; i < l->n; i++)
        hash_field(h, tag, l->items[i], strlen(l->items[i]));
}

void keep_init(struct keep *k, struct ledger *ledger, const struct ingest_config *cfg)
{
    struct hash h;
    *k = (struct keep){.ledger = ledger};
    hash_init(&h);
    hash_list(&h, "include", &cfg->include);
    hash_list(&h, "exclude", &cfg->exclude);
    hash_end(&h, k->choice);
}

/* The name of a file is part of its documents' ids. */
static void stat_of(const struct keep *k, const struct walk_file *f, struct ledger_stat *st)
{
    struct hash h;
    *st = (struct ledger_stat){
        .path = f->path, .size = f->size, .inode = f->inode, .mtime_ns = f->mtime_ns};
    hash_init(&h);
    hash_field(&h, "choice", k->choice, HASH_BYTES);
    hash_field(&h, "name", f->name, strlen(f->name));
    hash_end(&h, st->how);
}

int keep_look(struct keep *k, const struct walk_file *f, struct ledger_source *out,
              struct err *e)
{
    struct ledger_stat st;
    *out = (struct ledger_source){0};
    if (!k->ledger)
        return 0;
    stat_of(k, f, &st);
    int rc = ledger_source(k->ledger, &st, out, e);
    /* What could not be looked at is looked at again. */
    if (f->bad) {
        out->n = 0;
        out->whole = false;
    }
    return rc;
}

struct doc *keep_made(const struct ledger_source *s, size_t i, const char *label)
{
    struct doc *d = doc_new();
    d->source = mem_strdup(label);
    d->origin = (struct origin){.row = s->rows[i], .source = s->id, .occurrence = (int64_t)i};
    return d;
}

void keep_whole(struct keep *k, const struct ledger_source *known)
{
    ledger_kept(k->ledger, known->id);
}

void keep_begin(struct keep *k, const struct walk_file *f, const struct ledger_source *known,
                int64_t from)
{
    struct ledger_stat st;
    if (!k->ledger)
        return;
    assert(k->n < MOST);
    k->files[(k->first + k->n++) % MOST] =
        (struct keep_file){.source = known->id, .occurrence = from, .skip = (int64_t)known->n};
    stat_of(k, f, &st);
    ledger_reading(k->ledger, known->id, &st);
}

/* Nobody will ask what was in it. */
static void strip(struct doc *d)
{
    free(d->text);
    free(d->blocks);
    d->text = NULL;
    d->blocks = NULL;
    d->text_len = d->n_blocks = 0;
}

int keep_doc(struct keep *k, struct doc *d, struct err *e)
{
    if (!k->ledger)
        return 0;
    assert(k->n > 0);
    struct keep_file *f = &k->files[k->first];
    int64_t occurrence = f->occurrence++;
    if (occurrence < f->skip)
        return 1;
    d->origin = (struct origin){.source = f->source, .occurrence = occurrence};
    int rc = d->status == DOC_FAILED ? 0 : ledger_find(k->ledger, d->id, &d->origin.row, e);
    if (d->origin.row)
        strip(d);
    return rc;
}

void keep_end(struct keep *k)
{
    if (!k->ledger)
        return;
    const struct keep_file *f = &k->files[k->first];
    ledger_read(k->ledger, f->source, f->occurrence);
    k->first = (k->first + 1) % MOST;
    k->n--;
}
