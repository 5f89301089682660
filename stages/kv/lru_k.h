/* stages/kv/lru_k.h - what a page that is kept between runs is worth.
 *
 * What:   of each page the last three uses are kept. From the gaps between them follows how often the page
 *         is wanted, and from that and its cost what keeping it saves. Who has to make room gives up the
 *         page of the least worth.
 * Not:    knows no page, no file and no age limit; inside a run, where the future is known, next_use.h.
 * Rules:  1. Uses within a quarter of a day are one use (a run touches the pages of a document again and again):
 *            what counts is how often a page comes back.
 *         2. A page that came back within a week is worth more than one that was just used for the first time:
 *            one pass over much one-off text does not push out what most nights need.
 *         3. Among pages of equal history the one used last is worth most, as in LRU.
 *         4. A page that is used whenever another one is, is worth at least as much: the beginning of a prefix
 *            outlives its ends.
 *         5. A clock that was set back makes no page immortal.
 * Limit:  text that is read in the same order every night and does not fit defeats it, as it does LRU: what is
 *         given up is what comes next. Who knows what a run will still use pins it.
 * Thread: pure.
 * Source: LRU-K and its correlated references: O'Neil, O'Neil, Weikum 1993; the decay of the gaps is our own.
 */
#ifndef QUIRE_KV_LRU_K_H
#define QUIRE_KV_LRU_K_H

#include <stdint.h>

enum { LRU_K = 3 };

/* Enter a use at now (seconds of the wall clock) into times[LRU_K], newest first, of which n are set.
 * Returns how many are set then. */
int lru_k_use(uint32_t times[LRU_K], int n, uint32_t now);

/* Worth of keeping a page on: cost divided by the expected seconds to its next use. Higher is keep longer.
 *
 * times[n]  its last uses, newest first; n <= LRU_K. n = 0 is worth 0.
 * cost      what computing it again takes per stored byte, in any unit; 1: all pages are alike */
double lru_k_worth(const uint32_t times[], int n, uint32_t now, uint32_t cost);

#endif
