/* Property: any bytes, read as JSON lines, give at most one document per line, in order, each a text
 * that meets the rules of text or a failure with a message; labels are valid UTF-8. */
#include "stages/ingest/reader.h"
#include "tests/fuzz/fuzz_ingest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct memory {
    const uint8_t *data;
    size_t n, at;
};

/* Small pieces, so that lines cross them. */
static int read_memory(struct stream *s, const void **p, size_t *n, struct err *e)
{
    (void)e;
    struct memory *m = s->state;
    *n = m->n - m->at < 7 ? m->n - m->at : 7;
    *p = m->data + m->at;
    m->at += *n;
    return 0;
}

static void close_memory(struct stream *s)
{
    (void)s;
}

static size_t n_docs;

static int take(void *to, struct doc *d)
{
    (void)to;
    n_docs++;
    fuzz_check(d->chain[0] && !d->chain[1]);
    fuzz_check(utf8_valid_prefix(d->chain[0], strlen(d->chain[0])) == strlen(d->chain[0]));
    if (d->status == DOC_FAILED)
        fuzz_check(d->fail.code != ERR_NONE && d->fail.msg[0] && !d->text &&
                   utf8_valid_prefix(d->fail.msg, strlen(d->fail.msg)) == strlen(d->fail.msg));
    else
        fuzz_check_text(d);
    doc_unref(d);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct stream_ops ops = {read_memory, close_memory};
    struct ingest_config cfg;
    fuzz_config(&cfg, AS_JSONL);
    cfg.id_field = strdup("id");
    cfg.title_field = strdup("a.title");
    struct memory m = {data, size, 0};
    struct stream s;
    stream_init(&s, &ops, &m);
    struct reader r = {.cfg = &cfg, .emit = take, .source = "x", .name = "x"};
    struct item it = {.s = &s, .name = "x", .full_name = "x"};
    n_docs = 0;
    fuzz_check(reader_jsonl(&r, &it) == 0);
    size_t lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    fuzz_check(n_docs <= lines);
    opt_release(ingest_opts, n_ingest_opts, &cfg);
    return 0;
}
