/* Any bytes as messages of a reader: nothing is read past the end or allocated past the limits, and a document that is
 * taken has valid text and blocks, and is the same when it is put and taken again. The same for requests. */
#include "stages/ingest/wire.h"
#include "tests/fuzz/fuzz_ingest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct doc *d)
{
    struct err e = {0};
    struct buf b, other;
    struct doc *back = doc_new();
    buf_init(&b, SIZE_MAX);
    buf_init(&other, SIZE_MAX);
    fuzz_check(wire_put_head(&b, d, &e) == 0);
    fuzz_check(wire_get_head(back, (uint8_t *)b.data, b.len, &e) == 0);
    fuzz_check(wire_put_head(&other, back, &e) == 0);
    fuzz_check(b.len == other.len && memcmp(b.data, other.data, b.len) == 0);
    buf_release(&b);
    buf_release(&other);
    doc_unref(back);
}

static void check_doc(const struct doc *d)
{
    size_t at = 0;
    fuzz_check((d->status == DOC_FAILED) == (d->fail.code != ERR_NONE) && d->media_type);
    if (d->status == DOC_FAILED) {
        fuzz_check(!d->text && d->n_blocks == 0);
        return;
    }
    fuzz_check(d->n_blocks > 0 && d->encoding && strlen(d->text) == d->text_len);
    fuzz_check(utf8_valid_prefix(d->text, d->text_len) == d->text_len);
    for (size_t i = 0; i < d->n_blocks; i++) {
        fuzz_check(d->blocks[i].begin >= at && d->blocks[i].end > d->blocks[i].begin);
        at = d->blocks[i].end;
    }
    fuzz_check(at <= d->text_len);
}

/* One message, as isolate.c takes it from a socket. Returns its bytes, or 0. */
static size_t take_message(const uint8_t *p, size_t n)
{
    struct wire_limits l = wire_limits(FUZZ_DOCUMENT);
    struct wire_header h;
    struct err e = {0};
    if (n < WIRE_HEADER || wire_get_header(&h, p, &l, &e) != 0)
        return 0;
    fuzz_check(h.head_bytes <= l.head && h.text_bytes <= l.text && h.n_blocks <= l.blocks);
    size_t blocks = (size_t)h.n_blocks * WIRE_BLOCK, head = (size_t)h.head_bytes,
           text = (size_t)h.text_bytes;
    if (n - WIRE_HEADER < head + text + blocks)
        return 0;
    if (h.kind == WIRE_END)
        return WIRE_HEADER;
    p += WIRE_HEADER;
    struct doc *d = doc_new();
    bool ok = wire_get_head(d, p, head, &e) == 0;
    if (ok && (text || blocks)) {
        d->text = calloc(text + 1, 1);
        d->blocks = calloc(h.n_blocks + 1, sizeof(*d->blocks));
        fuzz_check(d->text && d->blocks);
        memcpy(d->text, p + head, text);
        d->text_len = text;
        for (; d->n_blocks < h.n_blocks; d->n_blocks++)
            wire_get_block(&d->blocks[d->n_blocks], p + head + text + d->n_blocks * WIRE_BLOCK);
    }
    ok = ok && wire_check_doc(d, &e) == 0;
    fuzz_check(ok || e.code == ERR_CORRUPT);
    if (ok) {
        check_doc(d);
        check_again(d);
    }
    doc_unref(d);
    return ok ? WIRE_HEADER + head + text + blocks : 0;
}

static void take_request(const uint8_t *p, size_t n)
{
    struct blame blames[WIRE_BLAMES], other[WIRE_BLAMES];
    struct wire_request q, back;
    struct err e = {0};
    if (wire_get_request(&q, blames, p, n, &e) != 0)
        return;
    fuzz_check(q.n_blames <= WIRE_BLAMES && q.name_at <= strlen(q.path));
    struct buf b;
    buf_init(&b, SIZE_MAX);
    fuzz_check(wire_put_request(&b, &q, &e) == 0);
    fuzz_check(wire_get_request(&back, other, (uint8_t *)b.data, b.len, &e) == 0);
    fuzz_check(back.file == q.file && strcmp(back.path, q.path) == 0);
    for (int i = 0; i < q.n_blames; i++)
        fuzz_check(spot_equal(&blames[i].spot, &other[i].spot));
    buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    take_request(data, size);
    for (size_t n; (n = take_message(data, size)) > 0; size -= n)
        data += n;
    return 0;
}
