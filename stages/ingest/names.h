/* stages/ingest/names.h - names of files and entries, which are labels and never paths.
 *
 * Rules:  1. A label is valid UTF-8 without control characters: those and bytes in an unknown
 *            encoding are written \xNN. "..", "/" at the front and the like stay as they are.
 *         2. Patterns of include and exclude look at the last component only.
 * Thread: pure.
 */
#ifndef QUIRE_INGEST_NAMES_H
#define QUIRE_INGEST_NAMES_H

#include "stages/ingest/charset.h"
#include "stages/ingest/ingest_opts.h"

/* A label for raw bytes; legacy: how to read them when they are not UTF-8, or NULL. Heap. */
char *label_new(const char *raw, size_t n, const struct charset *legacy);

/* The part after the last '/' or '\'. */
const char *label_base(const char *label);

/* The name without the suffix of a compression: "a.txt.gz" -> "a.txt", "a.tgz" -> "a.tar". Heap. */
char *label_unpacked(const char *label);

bool label_excluded(const struct ingest_config *cfg, const char *label);
bool label_included(const struct ingest_config *cfg, const char *label);

/* The code page that the names in the directory of a zip file are in, taken together; NULL when
 * all are UTF-8 or it cannot be said, and with an error (zip_dir.h). */
const struct charset *zip_names_charset(int fd, int64_t max, struct err *e);

#endif
