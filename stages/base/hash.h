/* stages/base/hash.h - SHA-256, for identities and manifests (libcrypto does the work).
 *
 * Rule:   structured keys add each field with hash_field(), which writes a tag and a length first,
 *         so that no two different field lists give the same bytes.
 * Thread: one struct hash belongs to one thread.
 */
#ifndef QUIRE_BASE_HASH_H
#define QUIRE_BASE_HASH_H

#include "stages/base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { HASH_BYTES = 32, HASH_HEX = 65 };

struct hash {
    void *ctx; /* owned by this struct between hash_init() and hash_end() */
};

void hash_init(struct hash *h);
void hash_add(struct hash *h, const void *data, size_t n);
void hash_field(struct hash *h, const char *tag, const void *data, size_t n);
void hash_field_u64(struct hash *h, const char *tag, uint64_t v);
/* Writes the digest and releases the inside; out may be NULL to drop it. */
void hash_end(struct hash *h, uint8_t out[HASH_BYTES]);

/* One call. */
void hash_bytes(const void *data, size_t n, uint8_t out[HASH_BYTES]);
/* The file's digest; -ERR_IO (reach DOC) when it cannot be read. */
int hash_file(const char *path, uint8_t out[HASH_BYTES], struct err *e) MUST_CHECK;
/* Lower-case hexadecimal, NUL-terminated. */
void hash_hex(const uint8_t digest[HASH_BYTES], char out[HASH_HEX]);

#endif
