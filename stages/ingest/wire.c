#include "stages/ingest/wire.h"

#include "stages/base/le.h"
#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/ingest/text_out.h"

#include <stdlib.h>
#include <string.h>

enum { ID_BYTES = 16, MAX_STRINGS = 1 << 16 };

/* A name grows fourfold as a label, a title is one; the names in a chain are short beside a document. */
struct wire_limits wire_limits(uint64_t max_document)
{
    return (struct wire_limits){.head = (UINT64_C(8) << 20) + 8 * max_document,
                                .text = max_document,
                                .blocks = text_blocks_bytes((size_t)max_document) /
                                          sizeof(struct block)};
}

static int refuse(struct err *e, const char *what)
{
    return err_set(e, REACH_DOC, ERR_CORRUPT, "a message of the reader: %s", what);
}

/* ---- writing ---- */

static int put32(struct buf *out, uint32_t v, struct err *e)
{
    uint8_t b[4];
    le32_put(b, v);
    return buf_add(out, b, sizeof(b), e);
}

static int put64(struct buf *out, uint64_t v, struct err *e)
{
    uint8_t b[8];
    le64_put(b, v);
    return buf_add(out, b, sizeof(b), e);
}

static int put_string(struct buf *out, const char *s, struct err *e)
{
    size_t n = s ? strlen(s) : 0;
    if (n >= UINT32_MAX)
        return err_set(e, REACH_DOC, ERR_LIMIT, "a string of 4 GiB");
    int rc = put32(out, s ? (uint32_t)n + 1 : 0, e);
    return rc == 0 && n > 0 ? buf_add(out, s, n, e) : rc;
}

static int put_list(struct buf *out, char *const *list, struct err *e)
{
    uint32_t n = 0;
    while (list && list[n])
        n++;
    int rc = put32(out, list ? n + 1 : 0, e);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = put_string(out, list[i], e);
    return rc;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

void wire_put_header(uint8_t out[WIRE_HEADER], const struct wire_header *h)
{
    le32_put(out, h->kind);
    le32_put(out + 4, 0);
    le64_put(out + 8, h->bytes_read);
    le64_put(out + 16, h->head_bytes);
    le64_put(out + 24, h->text_bytes);
    le64_put(out + 32, h->n_blocks);
}

int wire_put_head(struct buf *out, const struct doc *d, struct err *e)
{
    uint8_t id[ID_BYTES];
    for (size_t i = 0; i < ID_BYTES; i++)
        id[i] = (uint8_t)(hex_value(d->id[2 * i]) << 4 | hex_value(d->id[2 * i + 1]));
    int rc = buf_add(out, id, sizeof(id), e);
    if (!rc)
        rc = buf_add(out, d->sha256, sizeof(d->sha256), e);
    if (!rc)
        rc = put64(out, d->bytes, e);
    if (!rc)
        rc = buf_addc(out, (char)d->status, e);
    if (!rc)
        rc = buf_addc(out, (char)d->fail.code, e);
    const char *strings[] = {d->fail.msg, d->title, d->media_type, d->encoding};
    for (size_t i = 0; !rc && i < ARRAY_LEN(strings); i++)
        rc = put_string(out, strings[i], e);
    char *const *lists[] = {d->chain, d->parts, d->warnings};
    for (size_t i = 0; !rc && i < ARRAY_LEN(lists); i++)
        rc = put_list(out, lists[i], e);
    return rc;
}

void wire_put_block(uint8_t out[WIRE_BLOCK], const struct block *b)
{
    le32_put(out, (uint32_t)b->kind);
    le32_put(out + 4, (uint32_t)b->level);
    le32_put(out + 8, (uint32_t)b->page);
    le32_put(out + 12, (uint32_t)b->part);
    le64_put(out + 16, b->begin);
    le64_put(out + 24, b->end);
}

/* ---- reading ---- */

struct input {
    const uint8_t *p;
    size_t n;
    bool bad;     /* nothing more can be taken */
    bool starved; /* for want of memory */
};

static const uint8_t *take(struct input *in, size_t n)
{
    if (in->bad || n > in->n) {
        in->bad = true;
        return NULL;
    }
    const uint8_t *p = in->p;
    in->p += n;
    in->n -= n;
    return p;
}

static unsigned take8(struct input *in)
{
    const uint8_t *p = take(in, 1);
    return p ? *p : 0;
}

static uint32_t take32(struct input *in)
{
    const uint8_t *p = take(in, 4);
    return p ? le32_get(p) : 0;
}

static uint64_t take64(struct input *in)
{
    const uint8_t *p = take(in, 8);
    return p ? le64_get(p) : 0;
}

static bool is_clean(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] == '\0')
            return false;
    return utf8_valid_prefix(s, n) == n;
}

static char *take_string(struct input *in)
{
    uint32_t n = take32(in);
    const uint8_t *p = n > 0 ? take(in, n - 1) : NULL;
    if (!p)
        return NULL;
    if (!is_clean((const char *)p, n - 1)) {
        in->bad = true;
        return NULL;
    }
    char *s = mem_alloc(n);
    if (s)
        memcpy(s, p, n - 1);
    else
        in->bad = in->starved = true;
    return s;
}

static char **take_list(struct input *in)
{
    uint32_t n = take32(in);
    if (n == 0 || in->bad)
        return NULL;
    if (n - 1 > MAX_STRINGS) {
        in->bad = true;
        return NULL;
    }
    char **list = mem_need(n * sizeof(char *));
    for (uint32_t i = 0; i + 1 < n && !in->bad; i++) {
        list[i] = take_string(in);
        in->bad |= !list[i]; /* an absent one would end the list */
    }
    return list;
}

int wire_get_header(struct wire_header *h, const uint8_t in[WIRE_HEADER],
                    const struct wire_limits *l, struct err *e)
{
    uint32_t kind = le32_get(in);
    *h = (struct wire_header){.kind = kind == WIRE_DOC ? WIRE_DOC : WIRE_END,
                              .bytes_read = le64_get(in + 8),
                              .head_bytes = le64_get(in + 16),
                              .text_bytes = le64_get(in + 24),
                              .n_blocks = le64_get(in + 32)};
    if ((kind != WIRE_DOC && kind != WIRE_END) || le32_get(in + 4) != 0)
        return refuse(e, "unknown kind");
    if (kind == WIRE_END && (h->head_bytes || h->text_bytes || h->n_blocks))
        return refuse(e, "an end with contents");
    if (h->head_bytes > l->head || h->text_bytes > l->text || h->n_blocks > l->blocks)
        return refuse(e, "over the limits of a document");
    return 0;
}

int wire_get_head(struct doc *d, const uint8_t *bytes, size_t n, struct err *e)
{
    struct input in = {.p = bytes, .n = n};
    uint8_t id[HASH_BYTES] = {0};
    char hex[HASH_HEX];
    const uint8_t *p = take(&in, ID_BYTES);
    if (p)
        memcpy(id, p, ID_BYTES);
    hash_hex(id, hex);
    memcpy(d->id, hex, sizeof(d->id) - 1);
    if ((p = take(&in, HASH_BYTES)) != NULL)
        memcpy(d->sha256, p, HASH_BYTES);
    d->bytes = take64(&in);
    unsigned status = take8(&in), code = take8(&in);
    char *msg = take_string(&in);
    d->title = take_string(&in);
    d->media_type = take_string(&in);
    d->encoding = take_string(&in);
    d->chain = take_list(&in);
    d->parts = take_list(&in);
    d->warnings = take_list(&in);
    bool ok = !in.bad && in.n == 0 && status < DOC_STATUS_COUNT && code < ERR_CODE_COUNT &&
              msg && strlen(msg) < sizeof(d->fail.msg) && d->media_type && d->chain;
    if (ok && (status == DOC_FAILED) == (code != ERR_NONE)) {
        d->status = (enum doc_status)status;
        if (code)
            err_set(&d->fail, REACH_DOC, (enum err_code)code, "%s", msg);
    } else {
        ok = false;
    }
    free(msg);
    if (in.starved)
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for a message of the reader");
    return ok ? 0 : refuse(e, "not a document");
}

void wire_get_block(struct block *b, const uint8_t in[WIRE_BLOCK])
{
    *b = (struct block){.kind = (enum block_kind)le32_get(in),
                        .level = (int)le32_get(in + 4),
                        .page = (int)le32_get(in + 8),
                        .part = (int)le32_get(in + 12),
                        .begin = le64_get(in + 16),
                        .end = le64_get(in + 24)};
}

static bool block_fits(const struct doc *d, const struct block *b, size_t from)
{
    return (unsigned)b->kind <= BLOCK_QUOTE && b->level >= 0 && b->level <= INT16_MAX &&
           b->page >= 0 && b->part >= -1 && b->begin >= from && b->begin < b->end &&
           b->end <= d->text_len && utf8_is_boundary(d->text, d->text_len, b->begin) &&
           utf8_is_boundary(d->text, d->text_len, b->end);
}

int wire_check_doc(const struct doc *d, struct err *e)
{
    if (d->status == DOC_FAILED)
        return d->text || d->n_blocks || d->warnings ? refuse(e, "a failure with a text") : 0;
    if (!d->text || d->n_blocks == 0 || !d->encoding ||
        (d->status == DOC_PARTIAL) != (d->warnings != NULL))
        return refuse(e, "a document without a text");
    if (!is_clean(d->text, d->text_len))
        return refuse(e, "a text that is not UTF-8");
    for (size_t i = 0, at = 0; i < d->n_blocks; i++) {
        if (!block_fits(d, &d->blocks[i], at))
            return refuse(e, "blocks that are none");
        at = d->blocks[i].end;
    }
    return 0;
}

/* ---- to the reader ---- */

static int put_blame(struct buf *out, const struct blame *b, struct err *e)
{
    int rc = put32(out, (uint32_t)b->spot.n << 1 | b->spot.head, e);
    for (int i = 0; !rc && i < b->spot.n; i++)
        rc = put64(out, (uint64_t)b->spot.path[i], e);
    if (!rc)
        rc = put32(out, (uint32_t)b->why.code, e);
    return rc ? rc : put_string(out, b->why.msg, e);
}

int wire_put_request(struct buf *out, const struct wire_request *q, struct err *e)
{
    int rc = put64(out, q->file, e);
    if (!rc)
        rc = put64(out, q->known, e);
    if (!rc)
        rc = put64(out, q->name_at, e);
    if (!rc)
        rc = put32(out, (uint32_t)q->n_blames, e);
    for (int i = 0; !rc && i < q->n_blames; i++)
        rc = put_blame(out, &q->blames[i], e);
    if (!rc)
        rc = put32(out, q->why != NULL, e);
    /* Each string with its NUL, so that it can be used where it lies. */
    if (!rc)
        rc = buf_add(out, q->path, strlen(q->path) + 1, e);
    if (!rc)
        rc = buf_add(out, q->why ? q->why : "", q->why ? strlen(q->why) + 1 : 1, e);
    return rc;
}

static const char *take_tail(struct input *in)
{
    const uint8_t *nul = in->bad ? NULL : memchr(in->p, 0, in->n);
    return nul ? (const char *)take(in, (size_t)(nul - in->p) + 1) : NULL;
}

static void take_blame(struct input *in, struct blame *b)
{
    uint32_t n = take32(in);
    *b = (struct blame){.spot = {.n = (int)(n >> 1), .head = n & 1}};
    in->bad |= n >> 1 > SPOT_DEPTH;
    for (uint32_t i = 0; !in->bad && i < n >> 1; i++)
        b->spot.path[i] = (int64_t)take64(in);
    uint32_t code = take32(in);
    char *msg = take_string(in);
    in->bad |= code == 0 || code >= ERR_CODE_COUNT || !msg;
    if (!in->bad)
        err_set(&b->why, REACH_DOC, (enum err_code)code, "%s", msg);
    free(msg);
}

int wire_get_request(struct wire_request *q, struct blame *blames, const uint8_t *bytes,
                     size_t n, struct err *e)
{
    struct input in = {.p = bytes, .n = n};
    *q = (struct wire_request){.file = take64(&in), .known = take64(&in)};
    q->name_at = take64(&in);
    uint32_t n_blames = take32(&in);
    in.bad |= n_blames > WIRE_BLAMES;
    for (uint32_t i = 0; !in.bad && i < n_blames; i++)
        take_blame(&in, &blames[i]);
    bool closed = take32(&in) != 0;
    q->blames = blames;
    q->n_blames = (int)n_blames;
    q->path = take_tail(&in);
    const char *why = take_tail(&in);
    q->why = closed ? why : NULL;
    if (in.starved)
        return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for a request to a reader");
    if (in.bad || in.n != 0 || !q->path || !why || q->file == 0 || q->name_at > strlen(q->path))
        return err_set(e, REACH_JOB, ERR_BUG, "a request to a reader makes no sense");
    return 0;
}
