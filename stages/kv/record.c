#include "stages/kv/record.h"

#include "stages/base/le.h"

#include <string.h>
/* The state of the streaming hash lies on the stack, so hashing cannot run out of memory. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

/* Offsets of a head's fields; see docs/kv-store.md. */
enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_STATE = RECORD_STATE_AT,
    AT_KIND = 6,
    AT_CODEC = 7,
    AT_N_TOKENS = 8,
    AT_N_LOGITS = 12,
    AT_BODY_BYTES = 16,
    AT_WRITTEN = 20,
    AT_BODY_HASH = 24,
    AT_PAGE_HASH = 32,
    AT_OWNER = 40,
    AT_SUM = 48,
    AT_KEY = 56,
    AT_PARENT = AT_KEY + HASH_BYTES,
    AT_CONTEXT = AT_PARENT + HASH_BYTES,
    AT_TOKENS = AT_CONTEXT + HASH_BYTES,
    VERSION = 1,
};
_Static_assert(AT_TOKENS == (int)RECORD_FIXED, "the fields and the size agree");

static const char record_magic[4] = {'Q', 'K', 'V', 'R'};
static const char notice_magic[4] = {'Q', 'K', 'V', 'N'};
static const char segment_magic[8] = {'Q', 'U', 'I', 'R', 'E', 'K', 'V', '\n'};

uint64_t record_hash(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}

uint64_t disk_page_hash(const void *page, size_t page_bytes, const float *logits, int n_logits)
{
    XXH3_state_t s;
    XXH3_INITSTATE(&s);
    XXH3_64bits_reset(&s);
    XXH3_64bits_update(&s, page, page_bytes);
    if (n_logits > 0)
        XXH3_64bits_update(&s, logits, (size_t)n_logits * sizeof(float));
    return XXH3_64bits_digest(&s);
}

bool record_is_live(enum record_state s)
{
    return s == RECORD_KEPT || s == RECORD_EPHEMERAL || s == RECORD_PINNED;
}

static uint64_t padded(uint64_t n)
{
    return (n + RECORD_ALIGN - 1) & ~(uint64_t)(RECORD_ALIGN - 1);
}

size_t record_head_bytes(int n_tokens)
{
    return (size_t)padded(RECORD_FIXED + 4 * (uint64_t)n_tokens);
}

uint64_t record_bytes(int n_tokens, uint32_t body_bytes)
{
    return record_head_bytes(n_tokens) + padded(body_bytes);
}

/* Checksum of a head of n bytes, with the state and the checksum itself taken as zero. */
static uint64_t head_sum(const uint8_t *head, size_t n)
{
    uint8_t b[RECORD_HEAD_MAX];
    memcpy(b, head, n);
    b[AT_STATE] = 0;
    memset(b + AT_SUM, 0, 8);
    return record_hash(b, n);
}

size_t record_put(const struct record_head *h, uint8_t *out)
{
    const struct record_info *info = &h->info;
    size_t n = record_head_bytes(info->n_tokens);
    memset(out, 0, n);
    memcpy(out + AT_MAGIC, record_magic, sizeof(record_magic));
    out[AT_VERSION] = VERSION;
    out[AT_STATE] = (uint8_t)h->state;
    out[AT_KIND] = (uint8_t)info->kind;
    out[AT_CODEC] = (uint8_t)info->codec;
    le32_put(out + AT_N_TOKENS, (uint32_t)info->n_tokens);
    le32_put(out + AT_N_LOGITS, (uint32_t)info->n_logits);
    le32_put(out + AT_BODY_BYTES, h->body_bytes);
    le32_put(out + AT_WRITTEN, h->written);
    le64_put(out + AT_BODY_HASH, h->body_hash);
    le64_put(out + AT_PAGE_HASH, info->page_hash);
    le64_put(out + AT_OWNER, h->owner);
    memcpy(out + AT_KEY, info->key, HASH_BYTES);
    memcpy(out + AT_PARENT, info->parent, HASH_BYTES);
    memcpy(out + AT_CONTEXT, info->context, HASH_BYTES);
    for (int i = 0; i < info->n_tokens; i++)
        le32_put(out + AT_TOKENS + 4 * (size_t)i, (uint32_t)info->tokens[i]);
    le64_put(out + AT_SUM, head_sum(out, n));
    return n;
}

size_t record_get(struct record_head *h, const uint8_t *in, size_t n)
{
    if (n < RECORD_FIXED || memcmp(in + AT_MAGIC, record_magic, sizeof(record_magic)) != 0 ||
        in[AT_VERSION] != VERSION)
        return 0;
    uint32_t n_tokens = le32_get(in + AT_N_TOKENS), n_logits = le32_get(in + AT_N_LOGITS);
    if (n_tokens > PAGE_TOKENS || n < record_head_bytes((int)n_tokens))
        return 0;
    n = record_head_bytes((int)n_tokens);
    if (le64_get(in + AT_SUM) != head_sum(in, n))
        return 0;
    /* The checksum says that a writer put these here; a hostile one may have put anything. */
    struct record_info *info = &h->info;
    *h = (struct record_head){.state = (enum record_state)in[AT_STATE],
                              .body_bytes = le32_get(in + AT_BODY_BYTES),
                              .body_hash = le64_get(in + AT_BODY_HASH),
                              .owner = le64_get(in + AT_OWNER),
                              .written = le32_get(in + AT_WRITTEN)};
    if (h->body_bytes > RECORD_BODY_MAX || n_logits > h->body_bytes / sizeof(float) ||
        in[AT_KIND] > RECORD_TAIL || in[AT_CODEC] >= CODEC_COUNT ||
        (n_tokens == 0 && in[AT_KIND] != RECORD_TAIL))
        return 0;
    info->kind = (enum record_kind)in[AT_KIND];
    info->codec = (enum codec_kind)in[AT_CODEC];
    info->n_tokens = (int)n_tokens;
    info->n_logits = (int)n_logits;
    info->page_hash = le64_get(in + AT_PAGE_HASH);
    info->ephemeral = h->state == RECORD_EPHEMERAL;
    memcpy(info->key, in + AT_KEY, HASH_BYTES);
    memcpy(info->parent, in + AT_PARENT, HASH_BYTES);
    memcpy(info->context, in + AT_CONTEXT, HASH_BYTES);
    for (uint32_t i = 0; i < n_tokens; i++)
        info->tokens[i] = (int32_t)le32_get(in + AT_TOKENS + 4 * (size_t)i);
    return n;
}

void notice_put(const struct record_notice *t, uint8_t out[NOTICE_BYTES])
{
    memset(out, 0, NOTICE_BYTES);
    memcpy(out, notice_magic, sizeof(notice_magic));
    le32_put(out + 4, t->segment);
    le64_put(out + 8, t->offset);
    memcpy(out + 16, t->key, HASH_BYTES);
    le64_put(out + 48, record_hash(out, 48));
}

bool notice_get(struct record_notice *t, const uint8_t in[NOTICE_BYTES])
{
    if (memcmp(in, notice_magic, sizeof(notice_magic)) != 0 ||
        le64_get(in + 48) != record_hash(in, 48))
        return false;
    t->segment = le32_get(in + 4);
    t->offset = le64_get(in + 8);
    memcpy(t->key, in + 16, HASH_BYTES);
    return true;
}

void segment_head_put(uint8_t out[SEGMENT_HEAD_BYTES])
{
    memset(out, 0, SEGMENT_HEAD_BYTES);
    memcpy(out, segment_magic, sizeof(segment_magic));
    le32_put(out + 8, VERSION);
}

bool segment_head_ok(const uint8_t in[SEGMENT_HEAD_BYTES])
{
    return memcmp(in, segment_magic, sizeof(segment_magic)) == 0 && le32_get(in + 8) == VERSION;
}
