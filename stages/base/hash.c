#include "stages/base/hash.h"

#include "stages/base/le.h"
#include "stages/base/mem.h"
#include "stages/base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* libcrypto's digest calls fail only when it has no memory. */
static void need(int ok)
{
    if (ok != 1)
        mem_none("SHA-256 of libcrypto");
}

void hash_init(struct hash *h)
{
    h->ctx = EVP_MD_CTX_new();
    need(h->ctx != NULL);
    need(EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL));
}

void hash_add(struct hash *h, const void *data, size_t n)
{
    need(EVP_DigestUpdate(h->ctx, data, n));
}

void hash_field(struct hash *h, const char *tag, const void *data, size_t n)
{
    uint8_t size[8];
    hash_add(h, tag, strlen(tag) + 1);
    le64_put(size, n);
    hash_add(h, size, sizeof(size));
    hash_add(h, data, n);
}

void hash_field_u64(struct hash *h, const char *tag, uint64_t v)
{
    uint8_t b[8];
    le64_put(b, v);
    hash_field(h, tag, b, sizeof(b));
}

void hash_end(struct hash *h, uint8_t out[HASH_BYTES])
{
    if (out)
        need(EVP_DigestFinal_ex(h->ctx, out, NULL));
    EVP_MD_CTX_free(h->ctx);
    h->ctx = NULL;
}

void hash_bytes(const void *data, size_t n, uint8_t out[HASH_BYTES])
{
    need(EVP_Digest(data, n, out, NULL, EVP_sha256(), NULL));
}

int hash_file(const char *path, uint8_t out[HASH_BYTES], struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, REACH_DOC, ERR_IO, "cannot open \"%s\": %s", path, strerror(errno));
    struct hash h;
    hash_init(&h);
    char block[64 * 1024];
    long n;
    while ((n = sys_read(fd, block, sizeof(block))) > 0)
        hash_add(&h, block, (size_t)n);
    int rc =
        n < 0 ? err_set(e, REACH_DOC, ERR_IO, "cannot read \"%s\": %s", path, strerror(errno))
              : 0;
    hash_end(&h, rc ? NULL : out);
    close(fd);
    return rc;
}

void hash_hex(const uint8_t digest[HASH_BYTES], char out[HASH_HEX])
{
    for (int i = 0; i < HASH_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}
