#include "stages/base/lib_memory.h"

#include "stages/base/mem.h"

#include <jansson.h>
#include <libxml/xmlmemory.h>
#include <openssl/crypto.h>
#include <stdlib.h>

void *lib_resize(void *p, size_t n)
{
    void *grown = realloc(p, n ? n : 1);
    if (!grown)
        mem_none("a library");
    return grown;
}

void *lib_zeroed(size_t n, size_t size)
{
    size_t bytes;
    if (!size_mul(n, size, &bytes))
        mem_none("a library");
    return mem_need(bytes);
}

static void *plain(size_t n)
{
    return lib_resize(NULL, n);
}

static void *crypto_alloc(size_t n, const char *file, int line)
{
    (void)file, (void)line;
    return plain(n);
}

static void *crypto_resize(void *p, size_t n, const char *file, int line)
{
    (void)file, (void)line;
    if (n > 0)
        return lib_resize(p, n);
    free(p);
    return NULL;
}

static void crypto_free(void *p, const char *file, int line)
{
    (void)file, (void)line;
    free(p);
}

void lib_memory_init(void)
{
    /* Each refuses only when it has allocated already: then it goes on as it does. */
    (void)CRYPTO_set_mem_functions(crypto_alloc, crypto_resize, crypto_free);
    json_set_alloc_funcs(plain, free);
    (void)xmlMemSetup(free, plain, lib_resize, mem_strdup);
    /* No handler at exit: it frees what other threads still use. No settings of the machine, and no
     * texts of errors that we do not print: a digest needs neither. */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG |
                            OPENSSL_INIT_NO_LOAD_CRYPTO_STRINGS,
                        NULL);
}
