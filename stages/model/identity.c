#include "stages/model/identity.h"

#include "stages/base/log.h"
#include "stages/base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct identity {
    char *path;
    const struct file_map *map;
    const struct gguf *gguf;
    bool verify, running, done;
    bool remembered; /* before.* is what the cache says */
    atomic_bool stop;
    int64_t start_ns;
    pthread_t thread;
    struct model_digests before, digests;
};

/* The clock of file systems. */
static int64_t file_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What was read goes back to the system, as it does behind the packing. */
static void hash_mapped(struct identity *i, struct hash *h, const uint8_t *data, uint64_t n)
{
    enum { STEP = 4 << 20, PAGE = 4096 };
    for (uint64_t at = 0; at < n && !i->stop; at += STEP) {
        uint64_t len = n - at < STEP ? n - at : STEP;
        hash_add(h, data + at, (size_t)len);
        uintptr_t begin = ((uintptr_t)data + at) & ~(uintptr_t)(PAGE - 1);
        (void)madvise((void *)begin, (uintptr_t)data + at + len - begin,
                      MADV_DONTNEED); /* only advice */
    }
}

static int by_name(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static void hash_weights(struct identity *i, uint8_t out[HASH_BYTES])
{
    const struct gguf *g = i->gguf;
    const struct gguf_tensor **sorted = mem_need((g->n_tensors + 1) * sizeof(void *));
    struct hash h;
    for (size_t t = 0; t < g->n_tensors; t++)
        sorted[t] = &g->tensors[t];
    qsort(sorted, g->n_tensors, sizeof(void *), by_name);
    hash_init(&h);
    hash_field_u64(&h, "tensors", g->n_tensors);
    for (size_t t = 0; t < g->n_tensors && !i->stop; t++) {
        const struct gguf_tensor *x = sorted[t];
        hash_field(&h, "name", x->name, strlen(x->name));
        hash_field_u64(&h, "type", (uint64_t)x->gguf_type_id);
        for (int d = 0; d < 4; d++)
            hash_field_u64(&h, "dim", (uint64_t)x->dims[d]);
        hash_field_u64(&h, "bytes", x->bytes);
        hash_mapped(i, &h, x->data, x->bytes);
    }
    hash_end(&h, out);
    free(sorted);
}

static void *compute(void *arg)
{
    struct identity *i = arg;
    struct hash h;
    hash_init(&h);
    hash_mapped(i, &h, i->map->data, i->map->len);
    hash_end(&h, i->digests.file);
    hash_weights(i, i->digests.weights);
    return NULL;
}

struct identity *identity_start(const char *path, const struct file_map *map,
                                const struct gguf *g, bool verify)
{
    struct identity *i = mem_need(sizeof(*i));
    i->path = mem_strdup(path);
    i->map = map;
    i->gguf = g;
    i->verify = verify;
    i->remembered = digest_cache_find(path, &map->id, &i->before);
    i->done = i->remembered && !verify;
    if (i->done) {
        i->digests = i->before;
        return i;
    }
    i->start_ns = file_clock_ns();
    i->running = pthread_create(&i->thread, NULL, compute, i) == 0;
    return i;
}

static void report(const struct identity *i)
{
    if (!i->remembered)
        log_info("model", "digest computed; none was remembered to compare it with");
    else if (memcmp(&i->before, &i->digests, sizeof(i->before)) == 0)
        log_info("model", "digest computed: the one that was remembered is right");
    else
        log_warn("model",
                 "digest computed: the one that was remembered was WRONG and is replaced");
}

const struct model_digests *identity_wait(struct identity *i)
{
    if (i->done)
        return &i->digests;
    if (i->running)
        pthread_join(i->thread, NULL);
    else
        compute(i);
    i->running = false;
    i->done = true;
    if (i->verify)
        report(i);
    struct file_id now;
    struct err e = {0};
    if (file_id_of(i->path, &now, &e) == 0 && file_id_equal(&now, &i->map->id))
        digest_cache_put(i->path, &now, i->start_ns, &i->digests);
    return &i->digests;
}

void identity_free(struct identity *i)
{
    if (!i)
        return;
    i->stop = true;
    if (i->running)
        pthread_join(i->thread, NULL);
    free(i->path);
    free(i);
}
