/* stages/kv/next_use.h - which page to give up, when it is known who will want which.
 *
 * What:   an ordered set of the pages that may be given up. Within a run the requests that wait are known, so
 *         each page has a next use: the number of the request that will look it up. The page whose next use is
 *         farthest away is given up first; no other order can keep more look-ups in memory (Belady).
 * Not:    knows no request and no pool; numbers in, a number out.
 * Rules:  1. The order of giving up: pages never used again, the one longest in the set first; then by next
 *            use, farthest first; of the same request, pages that are on disk (clean) before those that would
 *            have to be written; of these, again the one longest in the set.
 *         2. Next uses are request numbers, not distances: as the run goes on nothing has to be updated. A page
 *            whose next use changes (its request came, was dropped, was added) is set again by the caller.
 *         3. Prefixes are looked up from their first page on. So a sequence puts its last page first: of one
 *            request the end then goes before the beginning.
 * Thread: one owner.
 * Source: Belady 1966, the optimum for pages of equal size.
 */
#ifndef QUIRE_KV_NEXT_USE_H
#define QUIRE_KV_NEXT_USE_H

#include <stdbool.h>
#include <stdint.h>

#define NEXT_USE_NEVER UINT32_MAX

struct next_use;

/* An empty set for pages 0 .. n_pages-1. All memory is taken here: 28 bytes a page. */
struct next_use *next_use_new(int n_pages);
void next_use_free(struct next_use *u); /* NULL is fine */

/* Put a page into the set, or change what is known of it; it then keeps its time in the set.
 * request  number of the next request that looks the page up, or NEXT_USE_NEVER
 * clean    its bytes are on disk
 * Cost: O(log n), as all but pick, which is O(1). */
void next_use_set(struct next_use *u, int page, uint32_t request, bool clean);
void next_use_remove(struct next_use *u, int page); /* not in the set: nothing happens */

/* The page to give up now, which stays in the set; -1 when the set is empty. */
int next_use_pick(const struct next_use *u);

int next_use_count(const struct next_use *u);
bool next_use_has(const struct next_use *u, int page);

#endif
