/* stages/ingest/ingest_opts.h - the `ingest` section of the job file. */
#ifndef QUIRE_INGEST_OPTS_H
#define QUIRE_INGEST_OPTS_H

#include "stages/base/opt.h"

enum ingest_as { AS_AUTO, AS_TEXT, AS_MARKDOWN, AS_HTML, AS_XML, AS_JSONL };

enum ingest_isolation { ISOLATION_AUTO, ISOLATION_YES, ISOLATION_NO };

struct ingest_config {
    struct opt_list from;    /* files, folders, globs */
    struct opt_list include; /* name patterns; empty: all */
    struct opt_list exclude;
    int as;                                    /* enum ingest_as */
    char *text_field, *id_field, *title_field; /* JSONL */
    char *encoding;                            /* NULL: detect */
    char *name_encoding;                       /* of entry names; NULL: detect */
    int max_depth;                             /* nested archives */
    int max_entries;                           /* per outermost archive */
    uint64_t max_document;                     /* source bytes of one document */
    uint64_t max_container;                    /* bytes delivered by one outermost archive */
    int max_ratio;                             /* delivered / packed, checked after 1 MiB */
    double timeout;  /* seconds of reading and extraction for one document */
    int isolation;   /* enum ingest_isolation */
    uint64_t memory; /* address space of the process that reads; 0: what documents need */
};

extern const struct opt ingest_opts[];
extern const size_t n_ingest_opts;

#endif
