/* stages/model/identity.h - which model a file holds: digests of its bytes and of its weights by content.
 *
 * What:   taken from the cache of digests (digest_cache.h), or computed by a thread of its own while the
 *         weights are packed.
 * Rules:  1. The digest of the weights covers name, shape, type and bytes of every tensor: not their order, not
 *            metadata such as the name or the chat template.
 *         2. With verify, the digests are computed in any case, and a wrong line of the cache is named in the log
 *            and replaced.
 * Thread: one owner; the file's map is only read.
 */
#ifndef QUIRE_MODEL_IDENTITY_H
#define QUIRE_MODEL_IDENTITY_H

#include "stages/model/digest_cache.h"
#include "stages/model/gguf.h"

struct identity;

/* map and g outlive it. */
struct identity *identity_start(const char *path, const struct file_map *map,
                                const struct gguf *g, bool verify);
/* Waits for the digests; valid until identity_free(). */
const struct model_digests *identity_wait(struct identity *i);
void identity_free(struct identity *i); /* NULL is fine */

#endif
