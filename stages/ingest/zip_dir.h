/* stages/ingest/zip_dir.h - a look through the central directory of a zip file.
 *
 * What:   finds the directory at the end of the file and shows each name in it, so that three
 *         questions can be answered before any entry is read: is there a zip behind a stub, is it
 *         really a document (DOCX, EPUB ...), and in which code page are its names.
 * Not:    no entry is opened here; libarchive does that.
 * Rules:  the directory is a hint from a hostile file. Nothing is believed but names and flags, and
 *         memory does not grow with its size.
 * Source: APPNOTE.TXT 6.3.10, sections 4.3.12 to 4.3.16 and appendix D.
 */
#ifndef QUIRE_INGEST_ZIP_DIR_H
#define QUIRE_INGEST_ZIP_DIR_H

#include "stages/base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Called for each entry; returns false to stop. name is raw bytes, not terminated. */
typedef bool zip_name_fn(void *to, const char *name, size_t len, bool utf8_flag);

/* Visits up to max entries. Returns the number seen: 0 also when fd holds no zip directory. -ERR_IO, -ERR_NOMEM. */
int64_t zip_dir_names(int fd, int64_t max, zip_name_fn *fn, void *to, struct err *e) MUST_CHECK;

/* "DOCX", "EPUB" ... when the zip is a document rather than an archive of some, else NULL, also with an error. */
const char *zip_dir_document(int fd, int64_t max, struct err *e);

#endif
