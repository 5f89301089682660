/* stages/ingest/inflate.h - gzip through zlib: checksums checked, cut files read as far as they go.
 *
 * Rules:  1. Members follow one another and are joined; bytes after the last member that are no
 *            gzip header are left alone, as gzip(1) does.
 *         2. A cut file ends with stream.torn set; a wrong checksum or bad data is -ERR_CORRUPT.
 *         3. More than max_ratio bytes per packed byte, after the first MiB, is -ERR_LIMIT.
 */
#ifndef QUIRE_INGEST_INFLATE_H
#define QUIRE_INGEST_INFLATE_H

#include "stages/ingest/stream.h"

/* s reads from `outer`, which must outlive it and is not closed. */
int inflate_open(struct stream *s, struct stream *outer, int max_ratio,
                 struct err *e) MUST_CHECK;

#endif
