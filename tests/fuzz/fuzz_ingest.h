/* tests/fuzz/fuzz_ingest.h - what holds for every document that ingest gives, whatever came in. */
#ifndef QUIRE_TESTS_FUZZ_INGEST_H
#define QUIRE_TESTS_FUZZ_INGEST_H

#include "stages/base/utf8.h"
#include "stages/ingest/extract.h"

#include <stdlib.h>
#include <string.h>

enum { FUZZ_DOCUMENT = 1 << 16 };

static inline void fuzz_check(bool ok)
{
    if (!ok)
        abort();
}

static inline void fuzz_config(struct ingest_config *cfg, int as)
{
    struct err e = {0};
    *cfg = (struct ingest_config){0};
    fuzz_check(opt_defaults(ingest_opts, n_ingest_opts, cfg, &e) == 0);
    cfg->as = as;
    cfg->max_document = FUZZ_DOCUMENT;
    cfg->timeout = 20;
}

/* Valid UTF-8 without NUL; blocks in range, disjoint, rising; only white space between them. */
static inline void fuzz_check_text(const struct doc *d)
{
    size_t at = 0;
    fuzz_check(d->text && strlen(d->text) == d->text_len && d->text_len <= FUZZ_DOCUMENT);
    fuzz_check(utf8_valid_prefix(d->text, d->text_len) == d->text_len);
    fuzz_check(d->n_blocks > 0 && d->media_type && d->encoding);
    fuzz_check((d->warnings != NULL) == (d->status == DOC_PARTIAL));
    for (size_t i = 0; i <= d->n_blocks; i++) {
        size_t begin = i < d->n_blocks ? d->blocks[i].begin : d->text_len;
        fuzz_check(begin >= at && begin <= d->text_len);
        for (; at < begin; at++)
            fuzz_check(text_is_space(d->text[at]));
        if (i == d->n_blocks)
            break;
        fuzz_check(d->blocks[i].end > begin && d->blocks[i].end <= d->text_len);
        fuzz_check(utf8_is_boundary(d->text, d->text_len, begin));
        fuzz_check(utf8_is_boundary(d->text, d->text_len, d->blocks[i].end));
        fuzz_check(!text_is_space(d->text[begin]) &&
                   !text_is_space(d->text[d->blocks[i].end - 1]));
        at = d->blocks[i].end;
    }
    fuzz_check(!d->title || utf8_valid_prefix(d->title, strlen(d->title)) == strlen(d->title));
    for (size_t i = 0; d->warnings && d->warnings[i]; i++)
        fuzz_check(utf8_valid_prefix(d->warnings[i], strlen(d->warnings[i])) ==
                   strlen(d->warnings[i]));
}

/* Extracts the bytes twice: a document that meets the rules or a failure with a message, and the
 * same both times. */
static inline void fuzz_extract(int as, const char *name, const uint8_t *data, size_t size)
{
    struct ingest_config cfg;
    struct doc *docs[2];
    fuzz_config(&cfg, as);
    for (int i = 0; i < 2; i++) {
        struct err e = {0};
        struct deadline deadline;
        deadline_start(&deadline, cfg.timeout);
        struct buf bytes;
        buf_init(&bytes, size);
        fuzz_check(buf_add(&bytes, data, size, &e) == 0);
        struct extract_input in = {
            .bytes = &bytes, .name = name, .cfg = &cfg, .deadline = &deadline};
        docs[i] = doc_new();
        int rc = extract_document(&in, docs[i], &e);
        buf_release(&bytes);
        fuzz_check((rc == 0) == (e.code == ERR_NONE));
        if (rc == 0)
            fuzz_check_text(docs[i]);
        else
            fuzz_check(e.msg[0] && e.reach == REACH_DOC && !docs[i]->text &&
                       !strstr(e.msg, "ingest.timeout"));
    }
    fuzz_check(docs[0]->text_len == docs[1]->text_len);
    fuzz_check(!docs[0]->text || memcmp(docs[0]->text, docs[1]->text, docs[0]->text_len) == 0);
    doc_unref(docs[0]);
    doc_unref(docs[1]);
    opt_release(ingest_opts, n_ingest_opts, &cfg);
}

#endif
