/* stages/base/mem.h - allocation with checked sizes.
 *
 * Rules:  1. Sizes that come from input go through size_mul() and size_add() first.
 *         2. Small fixed-size allocations use mem_need(), which ends the program when the machine
 *            has nothing left: there is no sensible way on, and nothing is lost that kill -9 would not lose, too.
 *            Input-sized ones use mem_alloc() and check.
 *         3. Tests can make the k-th allocation fail with mem_fail_after().
 * Thread: safe.
 */
#ifndef QUIRE_BASE_MEM_H
#define QUIRE_BASE_MEM_H

#include "stages/base/err.h"

#include <stddef.h>

/* a * b and a + b; false when the result does not fit, and *out is then untouched. */
bool size_mul(size_t a, size_t b, size_t *out) MUST_CHECK;
bool size_add(size_t a, size_t b, size_t *out) MUST_CHECK;

/* n bytes, zeroed; NULL when there is no memory. free() returns them. n = 0 gives a valid pointer. */
void *mem_alloc(size_t n) MUST_CHECK;

/* As realloc(); the old block stays valid when NULL is returned. New bytes are not zeroed. */
void *mem_resize(void *p, size_t n) MUST_CHECK;

/* n bytes, zeroed, aligned to 64; NULL when there is no memory. free() returns them. */
void *mem_aligned(size_t n) MUST_CHECK;

/* Small zeroed object, or copy of a string; mem_none() when there is no memory. */
void *mem_need(size_t n) __attribute__((returns_nonnull));
char *mem_strdup(const char *s) __attribute__((returns_nonnull));

/* Says on standard error that there is no memory for `what` and ends the process with MEM_EXIT. Nothing that
 * was registered to run at the end is run: it would need memory. */
void mem_none(const char *what) __attribute__((noreturn));
/* Where any error of a short bounded text means that it is too long: mem_none() if it means that there was no memory. */
void mem_insist(const struct err *e);
enum { MEM_EXIT = 3 }; /* the job stopped and can be resumed: docs/output.md */

/* Under the address sanitizer, touching p[0, n) is a fault until the block is freed; elsewhere this does nothing. For the
 * gaps between the parts of a block. p and n are multiples of 8. */
void mem_forbid(void *p, size_t n);

/* For tests: the k-th checked allocation from now fails (1 = the next); 0 switches this off. */
void mem_fail_after(long k);

#endif
