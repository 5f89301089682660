/* stages/base/lib_memory.h - what libraries do when there is no memory.
 *
 * What:   gives libcrypto, jansson and libxml2 allocators that end the process with mem_none() instead of failing.
 *         Of failed allocations the first makes a crash in its set-up, the second a record without one of its
 *         fields, the third a document without the rest of its text: in silence, as their callers are not told.
 *         And libcrypto starts without the settings of the machine (openssl.cnf) and the texts of its errors.
 * Thread: call once, before any other thread and before the first use of these libraries.
 */
#ifndef QUIRE_BASE_LIB_MEMORY_H
#define QUIRE_BASE_LIB_MEMORY_H

#include <stddef.h>

void lib_memory_init(void);

/* For libraries that take an allocator at their own places: as calloc() and realloc(), but for mem_none(). */
void *lib_zeroed(size_t n, size_t size) __attribute__((returns_nonnull));
void *lib_resize(void *p, size_t n) __attribute__((returns_nonnull));

#endif
