/* Property: any file gives documents, read or failed with a reason, and the limits hold: no document
 * over max_document, no more entries than max_entries, no chain deeper than max_depth, no more bytes
 * than the container may deliver; names are valid UTF-8 without control characters; ids differ. */
#include "stages/ingest/reader.h"
#include "tests/fuzz/fuzz_ingest.h"

#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <unistd.h>

enum { DEPTH = 3, ENTRIES = 100, CONTAINER = 1 << 20, IDS = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];
static char ids[IDS][33];
static int n_docs;
static uint64_t bytes;

static void check_name(const char *s)
{
    fuzz_check(utf8_valid_prefix(s, strlen(s)) == strlen(s));
    for (; *s; s++)
        fuzz_check((unsigned char)*s >= ' ' && *s != 0x7f);
}

static int take(void *to, struct doc *d)
{
    (void)to;
    int depth = 0;
    for (; d->chain[depth]; depth++)
        check_name(d->chain[depth]);
    fuzz_check(depth <= DEPTH + 1); /* lines of JSON count as one more */
    fuzz_check(d->bytes <= FUZZ_DOCUMENT && d->media_type);
    bytes += d->bytes;
    if (d->status == DOC_FAILED)
        fuzz_check(d->fail.code != ERR_NONE && d->fail.msg[0] && !d->text &&
                   utf8_valid_prefix(d->fail.msg, strlen(d->fail.msg)) == strlen(d->fail.msg));
    else
        fuzz_check_text(d);
    for (int i = 0; i < n_docs && i < IDS; i++)
        fuzz_check(d->status == DOC_FAILED || strcmp(ids[i], d->id) != 0);
    if (n_docs < IDS)
        memcpy(ids[n_docs], d->id, sizeof(ids[0]));
    n_docs++;
    doc_unref(d);
    return 0;
}

static void remove_file(void)
{
    unlink(path);
}

static void write_file(const uint8_t *data, size_t size)
{
    if (!path[0]) {
        strcpy(path, "/tmp/quire-fuzz-XXXXXX");
        int fd = mkstemp(path);
        fuzz_check(fd >= 0 && close(fd) == 0);
        atexit(remove_file);
        uselocale(newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0));
    }
    FILE *f = fopen(path, "wb");
    fuzz_check(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ingest_config cfg;
    fuzz_config(&cfg, AS_AUTO);
    cfg.max_depth = DEPTH;
    cfg.max_entries = ENTRIES;
    cfg.max_container = CONTAINER;
    write_file(data, size);
    n_docs = 0;
    bytes = 0;
    struct reader r = {.cfg = &cfg, .emit = take};
    struct walk_file f = {.path = path, .name = "archive", .size = size};
    fuzz_check(reader_file(&r, &f, open(path, O_RDONLY), NULL) == 0);
    spool_release(&r.spool);
    fuzz_check(r.entries <= ENTRIES + 1);
    fuzz_check(r.quota.used <= CONTAINER + FUZZ_DOCUMENT * 4); /* the block that went over it */
    opt_release(ingest_opts, n_ingest_opts, &cfg);
    return 0;
}
