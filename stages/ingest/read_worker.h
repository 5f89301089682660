/* stages/ingest/read_worker.h - the process that reads: files in, documents out, until nobody sends any more. */
#ifndef QUIRE_INGEST_READ_WORKER_H
#define QUIRE_INGEST_READ_WORKER_H

#include "stages/ingest/reader.h"

/* Serves requests on fd. Returns the status to exit with. spool belongs to the process. */
int read_worker(int fd, struct board *board, const struct ingest_config *cfg,
                const struct spool *spool, read_file_fn *read) MUST_CHECK;

#endif
