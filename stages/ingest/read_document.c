/* Documents out: one that was read whole, one field of a line, or a failure in the place of one. */
#include "stages/ingest/reader.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/ingest/extract.h"

#include <assert.h>
#include <string.h>

/* ---- places ---- */

const struct err *reader_at(const struct reader *r, const struct place *p, bool head)
{
    if (!r->errand)
        return NULL;
    struct spot s = {.head = head};
    for (const struct place *x = p; x; x = x->outer)
        s.n++;
    assert(s.n <= SPOT_DEPTH);
    int at = s.n;
    for (const struct place *x = p; x; x = x->outer)
        s.path[--at] = x->index;
    return errand_at(r->errand, &s);
}

/* ---- documents out ---- */

struct doc *reader_doc(const struct reader *r, const struct place *p, const void *bytes,
                       size_t n)
{
    struct doc *d = doc_new();
    d->source = mem_strdup(r->source);
    size_t depth = 0;
    for (const struct place *x = p; x; x = x->outer)
        depth++;
    d->chain = mem_need((depth + 1) * sizeof(char *));
    for (const struct place *x = p; x; x = x->outer)
        d->chain[--depth] = mem_strdup(x->name);
    struct hash h;
    uint8_t id[HASH_BYTES];
    char hex[HASH_HEX];
    hash_init(&h);
    hash_field(&h, "source", r->name, strlen(r->name));
    for (const struct place *x = p; x; x = x->outer) {
        hash_field(&h, "entry", x->name, strlen(x->name));
        hash_field_u64(&h, "index", (uint64_t)x->index);
    }
    if (bytes) {
        d->bytes = n;
        hash_bytes(bytes, n, d->sha256);
        hash_field(&h, "content", d->sha256, HASH_BYTES);
    }
    hash_end(&h, id);
    hash_hex(id, hex);
    memcpy(d->id, hex, sizeof(d->id) - 1);
    return d;
}

int reader_give(struct reader *r, struct doc *d, const struct err *e)
{
    if (e && e->code) {
        d->status = DOC_FAILED;
        d->fail = *e;
        d->fail.reach = REACH_DOC;
        /* A library's message may quote bytes of the file. */
        d->fail.msg[utf8_valid_prefix(d->fail.msg, strlen(d->fail.msg))] = '\0';
    }
    if (!d->media_type)
        d->media_type = mem_strdup("application/octet-stream");
    bool known = reader_knows(r);
    r->docs++;
    if (known) {
        doc_unref(d);
        return 0;
    }
    int rc = r->emit(r->to, d);
    deadline_start(&r->deadline, r->cfg->timeout); /* that the stages after this one took */
    return rc;
}

int reader_fail(struct reader *r, const struct place *p, const struct err *e)
{
    return reader_give(r, reader_doc(r, p, NULL, 0), e);
}

/* ---- one document ---- */

static int read_whole(struct reader *r, struct stream *s, struct buf *b, struct err *e)
{
    for (;;) {
        const void *p;
        size_t n;
        int rc = stream_next(s, &p, &n, e);
        if (rc != 0 || n == 0)
            return rc;
        if (n > b->cap - b->len)
            return err_set(e, REACH_DOC, ERR_LIMIT,
                           "larger than %llu bytes (ingest.max_document)",
                           (unsigned long long)r->cfg->max_document);
        rc = buf_add(b, p, n, e);
        if (rc != 0)
            return rc;
    }
}

static bool contains(const unsigned char *p, size_t n, const char *what, size_t len)
{
    for (size_t i = 0; i + len <= n; i++)
        if (p[i] == (unsigned char)what[0] && memcmp(p + i, what, len) == 0)
            return true;
    return false;
}

/* Formats that are known, so that nobody takes their bytes for text. */
static int refuse(const struct reader *r, const struct item *it, const struct buf *b,
                  struct err *e)
{
    static const char packed[] = "E\0n\0c\0r\0y\0p\0t\0e\0d\0P\0a\0c\0k\0a\0g\0e";
    const unsigned char *p = (const unsigned char *)b->data;
    const char *why = sniff_refused(p, b->len);
    if (!why && r->cfg->as == AS_AUTO)
        why = sniff_mail(p, b->len < STREAM_LOOK ? b->len : STREAM_LOOK, it->name);
    if (!why)
        return 0;
    /* An encrypted DOCX is an old Office container with a part of this name, in UTF-16. */
    if (b->len > 8 && memcmp(p, "\xd0\xcf\x11\xe0", 4) == 0 &&
        contains(p, b->len, packed, sizeof(packed) - 1))
        return err_set(e, REACH_DOC, ERR_ENCRYPTED, "an encrypted Office document");
    return err_set(e, REACH_DOC, ERR_UNSUPPORTED, "%s", why);
}

int reader_document(struct reader *r, const struct item *it)
{
    struct err e = {0};
    struct buf b;
    buf_init(&b, (size_t)r->cfg->max_document);
    int rc = read_whole(r, it->s, &b, &e);
    if (rc == 0 && reader_knows(r)) {
        /* It was read, so that all counts are as they were; its text is not needed. */
        buf_release(&b);
        return reader_give(r, reader_doc(r, it->place, NULL, 0), NULL);
    }
    struct doc *d = reader_doc(r, it->place, rc == 0 ? (b.data ? b.data : "") : NULL, b.len);
    if (rc == 0 && b.len == 0)
        rc = err_set(&e, REACH_DOC, ERR_FORMAT, "empty: no bytes");
    if (rc == 0)
        rc = refuse(r, it, &b, &e);
    if (rc == 0) {
        struct extract_input in = {.bytes = &b,
                                   .name = it->name,
                                   .torn = it->s->torn,
                                   .cfg = r->cfg,
                                   .deadline = &r->deadline};
        rc = extract_document(&in, d, &e);
    }
    (void)rc; /* e says the same */
    buf_release(&b);
    return reader_give(r, d, &e);
}
