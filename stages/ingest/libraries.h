/* stages/ingest/libraries.h - the libraries behind the extractors, set up for documents from anywhere.
 *
 * What:   libraries_open() once per process; libraries_load() also loads what they would open files for
 *         later: tables of encodings, the settings of libcrypto.
 * Thread: before others are started; libraries_enter() by each that reads, and libraries_leave().
 */
#ifndef QUIRE_INGEST_LIBRARIES_H
#define QUIRE_INGEST_LIBRARIES_H

#include <locale.h>

void libraries_open(void);
void libraries_load(void);

/* Names in archives are converted by the locale of the thread; cron's has none. */
struct libraries {
    locale_t utf8, before;
};
void libraries_enter(struct libraries *l);
void libraries_leave(struct libraries *l);

#endif
