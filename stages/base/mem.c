#include "stages/base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1 /* as gcc says it */
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

static atomic_long fail_after;

static bool must_fail(void)
{
    return atomic_load(&fail_after) > 0 && atomic_fetch_sub(&fail_after, 1) == 1;
}

bool size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool size_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

void *mem_alloc(size_t n)
{
    return must_fail() ? NULL : calloc(n ? n : 1, 1);
}

void *mem_resize(void *p, size_t n)
{
    return must_fail() ? NULL : realloc(p, n ? n : 1);
}

void *mem_aligned(size_t n)
{
    size_t padded;
    if (must_fail() || !size_add(n, 63, &padded))
        return NULL;
    padded = (padded & ~(size_t)63) + (n == 0 ? 64 : 0);
    void *p = aligned_alloc(64, padded);
    if (p)
        memset(p, 0, padded);
    return p;
}

void *mem_need(size_t n)
{
    void *p = calloc(n ? n : 1, 1);
    if (!p) {
        char what[32];
        snprintf(what, sizeof(what), "%zu bytes", n);
        mem_none(what);
    }
    return p;
}

void mem_none(const char *what)
{
    char line[128];
    int n = snprintf(line, sizeof(line), "quire: out of memory (%.80s)\n", what);
    /* write(2): stdio may want a buffer. */
    if (write(STDERR_FILENO, line, (size_t)n) < 0)
        (void)0;
    _exit(MEM_EXIT);
}

char *mem_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(mem_need(n), s, n);
}

void mem_insist(const struct err *e)
{
    if (e->code == ERR_NOMEM)
        mem_none(e->msg);
}

void mem_fail_after(long k)
{
    atomic_store(&fail_after, k);
}

void mem_forbid(void *p, size_t n)
{
#ifdef __SANITIZE_ADDRESS__
    ASAN_POISON_MEMORY_REGION(p, n);
#else
    (void)p;
    (void)n;
#endif
}
