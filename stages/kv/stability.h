/* stages/kv/stability.h - is a page worth keeping for the next run?
 *
 * What:   the pages of a job's requests fall in three classes. For each class it is counted how many look-ups
 *         were repeats: of a page that this job had looked up before, or an earlier run (disk_was_used()). A
 *         page that has not come back itself is kept when pages of its class do come back.
 *
 *             class      positions of                                      kept
 *             SHARED     every request of the job: instructions, examples  always
 *             DOCUMENT   the document and what precedes it                 while the class repeats, 10 % and more
 *             OWN        one request: a question, a partial answer         the same
 *
 * Rules:  1. A page that repeats is kept, whatever its class.
 *         2. The first look-ups do not decide. Each class starts as if some look-ups had been counted: DOCUMENT
 *            so that about the first hundred pages are kept without a repeat, and some twenty thousand where
 *            the job is known to come back to its documents; OWN so that nothing is kept until it repeats.
 *         3. So a first run over one-off text writes little. What it looked up stays in the history of uses,
 *            and a second run over the same text sees repeats from its first page on.
 * Thread: counters are atomic; any thread.
 */
#ifndef QUIRE_KV_STABILITY_H
#define QUIRE_KV_STABILITY_H

#include "stages/base/buf.h"

#include <stdatomic.h>

enum prefix_class { PREFIX_SHARED, PREFIX_DOCUMENT, PREFIX_OWN, PREFIX_CLASS_COUNT };

/* Zeroed: nothing was looked up, nothing is expected. */
struct stability {
    bool
        expect_reuse; /* set before the run: the job asks more than one question of a document */
    atomic_llong lookups[PREFIX_CLASS_COUNT];
    atomic_llong repeats[PREFIX_CLASS_COUNT]; /* of these */
};

/* Class of the page that ends before position `end` of a request, whose first n_shared positions every request
 * has and whose first n_document ones end with the document. A page belongs to the class of its last position. */
enum prefix_class stability_class(int end, int n_shared, int n_document);

/* Count a look-up. repeat: this job or an earlier run has looked the page up before. */
void stability_count(struct stability *s, enum prefix_class of, bool repeat);

/* Shall this page be stored for later runs? repeat: as counted, at any of its look-ups. */
bool stability_keeps(const struct stability *s, enum prefix_class of, bool repeat);

/* Share of repeats, 0 to 1, of what was counted; -1 when nothing was. */
double stability_share(const struct stability *s, enum prefix_class of);

const char *prefix_class_name(enum prefix_class of); /* "document"; NULL past the end */

/* "prefix stability: shared 100 %, document 83 %, own 0 %"; classes without look-ups are left out. */
int stability_line(const struct stability *s, struct buf *out, struct err *e) MUST_CHECK;

#endif
