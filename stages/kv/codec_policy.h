/* stages/kv/codec_policy.h - how many bits each layer gets from the lossy codecs.
 *
 * Rules:  the table is part of what a codec means: another table is another codec, with another name, because
 *         pages of the old one may be on disk.
 */
#ifndef QUIRE_KV_CODEC_POLICY_H
#define QUIRE_KV_CODEC_POLICY_H

#include "stages/kv/codec.h"

struct codec_layer {
    int k_bits; /* 8 or 4 */
    int v_bits; /* 8 or 4 */
    int v_zero; /* 0, or: 4-bit values below v_zero/64 of their group's largest become 0 */
};

/* Of a lossy kind whose pages are halves in memory; 0 <= layer < n_layer. */
struct codec_layer codec_policy(enum codec_kind kind, int layer, int n_layer);

#endif
