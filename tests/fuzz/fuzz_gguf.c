/* Property: any bytes are either refused with a message, or give a directory in which every string, array and
 * tensor lies inside the bytes and can be read to its end; and a vocabulary in them opens or is refused. */
#include "stages/model/gguf.h"
#include "stages/model/vocab.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static unsigned touch(const uint8_t *p, size_t n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += p[i];
    return sum;
}

static void check(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf g;
    struct err e = {0};
    volatile unsigned sum = 0;
    if (gguf_parse(&g, data, size, &e) != 0) {
        check(e.msg[0] && e.reach == REACH_JOB && !g.kv && !g.tensors);
        return 0;
    }
    for (size_t i = 0; i < g.n_kv; i++) {
        const struct gguf_kv *kv = &g.kv[i];
        const uint8_t *p = kv->data;
        check(p >= data && p <= data + size);
        for (uint64_t k = 0; kv->item_type == GGUF_STRING && k < kv->count; k++) {
            struct gguf_string s = gguf_next_string(&p);
            check(p <= data + size);
            sum += touch((const uint8_t *)s.s, s.len);
        }
    }
    for (size_t i = 0; i < g.n_tensors; i++) {
        const struct gguf_tensor *t = &g.tensors[i];
        check(t->data >= data && t->data <= data + size &&
              t->bytes <= (size_t)(data + size - t->data));
        check(gguf_tensor(&g, t->name) == t);
        sum += touch(t->data, t->bytes);
    }
    struct vocab *v;
    if (vocab_open(&v, &g, &e) == 0) {
        check(vocab_size(v) > 0 && vocab_count(v, "a b<s>", 6) >= 0);
        vocab_free(v);
    } else {
        check(e.msg[0] != '\0');
    }
    gguf_release(&g);
    check(sum <= UINT32_MAX); /* the reads above must not be optimised away */
    return 0;
}
