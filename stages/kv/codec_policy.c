#include "stages/kv/codec_policy.h"

static const struct codec_layer k8v4 = {8, 4, 0}, q4 = {4, 4, 0};

/* By thirds of the depth. docs/kv-codecs.md has what each step costs in either sample model: an early error passes
 * through all later layers, yet only Gemma is clearly the better for it. The values that become 0 in the last third
 * are those within one step of it: more would cost much and save nothing. */
static const struct codec_layer layered[3] = {{8, 8, 0}, {8, 4, 0}, {4, 4, 4}};

struct codec_layer codec_policy(enum codec_kind kind, int layer, int n_layer)
{
    switch (kind) {
    case CODEC_K8V4:
        return k8v4;
    case CODEC_Q4:
        return q4;
    default:
        return layered[3 * layer / n_layer];
    }
}
