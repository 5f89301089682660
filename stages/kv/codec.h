/* stages/kv/codec.h - the bytes of a KV page as they are stored.
 *
 * What:   encodes and decodes whole pages: every layer's slice, K and V of the first n_tokens positions.
 *         Exact codecs give back the same bytes. Lossy ones (codec_is_lossy) are part of a page's
 *         identity: a page is encoded once, when it is sealed, and what decode gives back is from then on
 *         the page, in memory and on disk alike. Of CODEC_Q8 that is a smaller page, with its integers and
 *         scales as they are: codec_shrink() makes it, and encode and decode are exact.
 * Not:    knows no file and no key (record.h, disk.h); keeps no checksum.
 * Rules:  1. decode takes hostile bytes: every length is checked, nothing outside the page is written.
 *         2. Positions from n_tokens on are zero after decode, and encode does not look at them.
 *         3. Lossy codecs take full pages only (n_tokens = PAGE_TOKENS).
 *         4. The result depends on the input bytes alone: not on the CPU, the compiler or the zstd library
 *            (whose frames differ between versions, but decode to the same bytes).
 * Thread: one struct codec belongs to one thread.
 * Source: splitting off the exponent: ZipNN (Hershcovitch et al. 2024); K by channel, V by token: KIVI
 *         (Liu et al. 2024).
 */
#ifndef QUIRE_KV_CODEC_H
#define QUIRE_KV_CODEC_H

#include "stages/base/err.h"
#include "stages/kv/page.h"

#include <stddef.h>
#include <stdint.h>

enum codec_kind {
    CODEC_RAW,     /* the halves as they are */
    CODEC_SPLIT,   /* exact: high bytes by zstd, low bytes as they are */
    CODEC_Q8,      /* K: int8, a scale per channel; V: int8, a scale per token */
    CODEC_K8V4,    /* K as Q8; V: int4 */
    CODEC_Q4,      /* K: int4, scale and minimum per channel and 32 tokens; V: int4 */
    CODEC_LAYERED, /* Q8 in the first layers, fewer bits and sparser V with depth */
    CODEC_COUNT
};

/* What a page holds; the layout of a slice is that of kernels.h (kern_page_slice_bytes). n_kv_head 0: bytes
 * without a meaning (the null model's), which every codec stores as they are. */
struct kv_shape {
    int n_layer, n_kv_head, head_dim;
    size_t slice_bytes; /* from one layer to the next in a page, a multiple of 64 */
};

struct codec;

struct codec *codec_new(const struct kv_shape *shape);
void codec_free(struct codec *c); /* NULL is fine */

/* Bytes of a layer's slice, and of a page, as this kind has full pages in memory: fewer than shape->slice_bytes if
 * they are shrunk. */
size_t codec_slice_bytes(const struct kv_shape *shape, enum codec_kind kind);
size_t codec_page_bytes(const struct kv_shape *shape, enum codec_kind kind);
bool codec_shrinks(const struct kv_shape *shape, enum codec_kind kind);
/* Make a full page of halves one of CODEC_Q8, in place: it is then the first codec_page_bytes(). */
void codec_shrink(struct codec *c, void *page);

/* Most bytes that codec_encode() writes, for any kind and content. */
size_t codec_bound(const struct kv_shape *shape);

/* Encode positions [0, n_tokens) of page (of a kind that shrinks them, a page that is shrunk) into out[codec_bound()]. Returns the bytes written. */
size_t codec_encode(struct codec *c, enum codec_kind kind, const void *page, int n_tokens,
                    uint8_t *out);
/* The inverse. -ERR_CORRUPT (reach DOC) when in[0, n) is not what encode writes; the page's content is then
 * unspecified. */
int codec_decode(struct codec *c, enum codec_kind kind, const uint8_t *in, size_t n, void *page,
                 int n_tokens, struct err *e) MUST_CHECK;

bool codec_is_lossy(enum codec_kind kind);
const char *codec_name(enum codec_kind kind); /* "split"; NULL past the end */

#endif
