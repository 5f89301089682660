/* GGUF as a cursor over bytes: header, key-value pairs, tensor directory, then the directory is checked as
 * a whole.
 *
 *   "GGUF" | u32 version | u64 tensors | u64 pairs | pairs | tensor infos | pad to alignment | tensor data
 *
 * Every read goes through take(), which knows how much is left; counts are compared with what is left before
 * anything is allocated for them. Duplicates are found by sorting, not by hashing: a file cannot choose names
 * that make it slow. */
#include "stages/model/gguf.h"

#include "stages/base/le.h"
#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A name of 1 byte, its length, and the smallest rest: what one entry takes at least. */
enum { KV_BYTES_MIN = 8 + 1 + 4 + 1, TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8 };
enum { ENTRIES_MAX = 1 << 16, KEY_BYTES_MAX = 65535, NAME_BYTES_MAX = 64, DIMS_MAX = 4 };
enum { ALIGNMENT_DEFAULT = 32, ALIGNMENT_MIN = 8, ALIGNMENT_MAX = 65536 };
#define DIM_MAX ((int64_t)1 << 40)

static const uint8_t type_bytes[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
    [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
    [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8, /* others: 0 */
};

struct cursor {
    const uint8_t *bytes;
    size_t pos, len;
};

static size_t left(const struct cursor *c)
{
    return c->len - c->pos;
}

static int format(struct err *e, size_t at, const char *what)
{
    return err_set(e, REACH_JOB, ERR_FORMAT, "gguf: byte %zu: %s", at, what);
}

/* The next n bytes, or NULL with e set. */
static const uint8_t *take(struct cursor *c, uint64_t n, struct err *e)
{
    if (n > left(c)) {
        err_set(e, REACH_JOB, ERR_FORMAT,
                "gguf: byte %zu: the file ends here, %" PRIu64
                " bytes were expected and %zu are left",
                c->pos, n, left(c));
        return NULL;
    }
    const uint8_t *p = c->bytes + c->pos;
    c->pos += (size_t)n;
    return p;
}

static int take_u32(struct cursor *c, uint32_t *v, struct err *e)
{
    const uint8_t *p = take(c, 4, e);
    if (!p)
        return -ERR_FORMAT;
    *v = le32_get(p);
    return 0;
}

static int take_u64(struct cursor *c, uint64_t *v, struct err *e)
{
    const uint8_t *p = take(c, 8, e);
    if (!p)
        return -ERR_FORMAT;
    *v = le64_get(p);
    return 0;
}

static int take_string(struct cursor *c, struct gguf_string *out, struct err *e)
{
    uint64_t n;
    if (take_u64(c, &n, e) != 0)
        return -ERR_FORMAT;
    const uint8_t *p = take(c, n, e);
    if (!p)
        return -ERR_FORMAT;
    *out = (struct gguf_string){(const char *)p, (size_t)n};
    return 0;
}

/* Names end up in messages and reports, so they are printable UTF-8: that also rules out a NUL, which would
 * make two different names look the same. */
static int take_name(struct cursor *c, struct gguf_string *out, size_t max, struct err *e)
{
    size_t at = c->pos;
    if (take_string(c, out, e) != 0)
        return -ERR_FORMAT;
    if (out->len == 0)
        return format(e, at, "an empty name");
    if (out->len > max)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "gguf: byte %zu: a name of %zu bytes, at most %zu are allowed", at,
                       out->len, max);
    if (utf8_valid_prefix(out->s, out->len) != out->len)
        return format(e, at, "a name that is not UTF-8");
    for (size_t i = 0; i < out->len; i++)
        if ((unsigned char)out->s[i] < 0x20 || out->s[i] == 0x7f)
            return format(e, at, "a name with a control character");
    return 0;
}

static int take_bools(struct cursor *c, uint64_t n, struct err *e)
{
    const uint8_t *p = take(c, n, e);
    if (!p)
        return -ERR_FORMAT;
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return format(e, c->pos - (size_t)(n - i), "a truth value that is neither 0 nor 1");
    return 0;
}

/* Step over n items of one type and check them. */
static int take_items(struct cursor *c, enum gguf_type type, uint64_t n, struct err *e)
{
    struct gguf_string s;
    size_t width = type == GGUF_STRING ? 8 : type_bytes[type];
    if (n > left(c) / width)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "gguf: byte %zu: %" PRIu64 " items do not fit into the file", c->pos, n);
    if (type == GGUF_BOOL)
        return take_bools(c, n, e);
    if (type != GGUF_STRING)
        return take(c, n * width, e) ? 0 : -ERR_FORMAT;
    for (uint64_t i = 0; i < n; i++)
        if (take_string(c, &s, e) != 0)
            return -ERR_FORMAT;
    return 0;
}

static int take_type(struct cursor *c, enum gguf_type *out, struct err *e)
{
    size_t at = c->pos;
    uint32_t t;
    if (take_u32(c, &t, e) != 0)
        return -ERR_FORMAT;
    if (t >= GGUF_TYPE_COUNT)
        return err_set(e, REACH_JOB, ERR_FORMAT, "gguf: byte %zu: unknown value type %" PRIu32,
                       at, t);
    *out = (enum gguf_type)t;
    return 0;
}

static int take_pair(struct cursor *c, struct gguf_kv *kv, struct err *e)
{
    if (take_name(c, &kv->key, KEY_BYTES_MAX, e) != 0 || take_type(c, &kv->type, e) != 0)
        return -ERR_FORMAT;
    enum gguf_type item = kv->type;
    kv->count = 1;
    if (kv->type == GGUF_ARRAY) {
        size_t at = c->pos;
        if (take_type(c, &item, e) != 0 || take_u64(c, &kv->count, e) != 0)
            return -ERR_FORMAT;
        if (item == GGUF_ARRAY)
            return format(e, at, "an array inside an array is not read");
    }
    kv->item_type = item;
    kv->data = c->bytes + c->pos;
    return take_items(c, item, kv->count, e);
}

static int take_header(struct gguf *g, struct cursor *c, struct err *e)
{
    const uint8_t *magic = take(c, 4, e);
    uint32_t version;
    uint64_t tensors, pairs;
    if (!magic)
        return -ERR_FORMAT;
    if (memcmp(magic, "GGUF", 4) != 0)
        return format(e, 0, "not a GGUF file (it does not start with \"GGUF\")");
    if (take_u32(c, &version, e) != 0)
        return -ERR_FORMAT;
    if (version == 2u << 24 || version == 3u << 24)
        return format(e, 4, "a big-endian file; only little-endian ones are read");
    if (version != 2 && version != 3)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "gguf: version %" PRIu32 " is not read, only 2 and 3 are", version);
    if (take_u64(c, &tensors, e) != 0 || take_u64(c, &pairs, e) != 0)
        return -ERR_FORMAT;
    if (tensors > left(c) / TENSOR_BYTES_MIN || pairs > left(c) / KV_BYTES_MIN)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "gguf: %" PRIu64 " tensors and %" PRIu64
                       " keys do not fit into a file of %zu bytes",
                       tensors, pairs, c->len);
    if (tensors > ENTRIES_MAX || pairs > ENTRIES_MAX)
        return err_set(e, REACH_JOB, ERR_LIMIT,
                       "gguf: %" PRIu64 " tensors and %" PRIu64 " keys, at most %d each",
                       tensors, pairs, ENTRIES_MAX);
    g->version = (int)version;
    g->n_tensors = (size_t)tensors;
    g->n_kv = (size_t)pairs;
    g->tensors = mem_alloc(g->n_tensors * sizeof(*g->tensors));
    g->kv = mem_alloc(g->n_kv * sizeof(*g->kv));
    if (!g->tensors || !g->kv)
        return err_set(e, REACH_JOB, ERR_NOMEM, "gguf: no memory for the directory");
    return 0;
}

static int set_alignment(struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, "general.alignment");
    g->alignment = ALIGNMENT_DEFAULT;
    if (!kv)
        return 0;
    if (kv->type != GGUF_U32)
        return err_set(e, REACH_JOB, ERR_FORMAT, "gguf: general.alignment is not a u32");
    uint32_t a = le32_get(kv->data);
    if (a < ALIGNMENT_MIN || a > ALIGNMENT_MAX || (a & (a - 1)) != 0)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "gguf: general.alignment is %" PRIu32
                       ", allowed are powers of two from %d to %d",
                       a, ALIGNMENT_MIN, ALIGNMENT_MAX);
    g->alignment = a;
    return 0;
}

/* Fills in type and bytes from the file's type number and the dimensions. */
static int size_tensor(struct gguf_tensor *t, struct err *e)
{
    size_t values = 1, blocks, bytes;
    for (int i = 0; i < t->n_dims; i++)
        if (!size_mul(values, (size_t)t->dims[i], &values) || values > INT64_MAX)
            return err_set(e, REACH_JOB, ERR_FORMAT,
                           "gguf: tensor %s: its dimensions multiply to more than 2^63",
                           t->name);
    t->type = kern_type_of_gguf((unsigned)t->gguf_type_id);
    if (t->type < 0)
        return 0;
    const struct kern_type_info *info = &kern_types[t->type];
    if (t->dims[0] % info->block_values != 0)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "gguf: tensor %s: a row of %" PRId64
                       " values is not a multiple of %d, the block of %s",
                       t->name, t->dims[0], info->block_values, info->name);
    blocks = values / (size_t)info->block_values;
    if (!size_mul(blocks, (size_t)info->block_bytes, &bytes))
        return err_set(e, REACH_JOB, ERR_FORMAT, "gguf: tensor %s: too large", t->name);
    t->bytes = bytes;
    return 0;
}

static int take_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t *offset, struct err *e)
{
    struct gguf_string name;
    uint32_t n_dims, type;
    if (take_name(c, &name, NAME_BYTES_MAX, e) != 0)
        return -ERR_FORMAT;
    memcpy(t->name, name.s, name.len);
    if (take_u32(c, &n_dims, e) != 0)
        return -ERR_FORMAT;
    if (n_dims < 1 || n_dims > DIMS_MAX)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "gguf: tensor %s: %" PRIu32 " dimensions, 1 to %d are allowed", t->name,
                       n_dims, DIMS_MAX);
    t->n_dims = (int)n_dims;
    for (int i = 0; i < DIMS_MAX; i++) {
        uint64_t d = 1;
        if (i < t->n_dims && take_u64(c, &d, e) != 0)
            return -ERR_FORMAT;
        if (d < 1 || d > (uint64_t)DIM_MAX)
            return err_set(e, REACH_JOB, ERR_FORMAT,
                           "gguf: tensor %s: dimension %d is %" PRIu64
                           ", 1 to 2^40 are allowed",
                           t->name, i, d);
        t->dims[i] = (int64_t)d;
    }
    if (take_u32(c, &type, e) != 0 || take_u64(c, offset, e) != 0)
        return -ERR_FORMAT;
    if (type > INT32_MAX)
        return err_set(e, REACH_JOB, ERR_FORMAT, "gguf: tensor %s: type number %" PRIu32,
                       t->name, type);
    t->gguf_type_id = (int)type;
    return size_tensor(t, e);
}

/* Turns the offset of a tensor into a pointer. */
static int place_tensor(const struct gguf *g, struct gguf_tensor *t, uint64_t offset,
                        size_t data_start, struct err *e)
{
    size_t room = g->len > data_start ? g->len - data_start : 0;
    if (offset % g->alignment != 0)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "gguf: tensor %s: offset %" PRIu64
                       " is not a multiple of the alignment %" PRIu64,
                       t->name, offset, g->alignment);
    /* A type that is not read has an unknown size, but some byte of it must be there. */
    if (offset >= room || t->bytes > room - offset)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "gguf: tensor %s: bytes %" PRIu64 " to %" PRIu64
                       " of the data, the file holds %zu",
                       t->name, offset, offset + t->bytes, room);
    t->data = g->bytes + data_start + offset;
    return 0;
}

static int compare_keys(const void *a, const void *b)
{
    const struct gguf_string *x = &(*(const struct gguf_kv *const *)a)->key;
    const struct gguf_string *y = &(*(const struct gguf_kv *const *)b)->key;
    int order = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct gguf_tensor *const *)a)->name,
                  (*(const struct gguf_tensor *const *)b)->name);
}

static int compare_places(const void *a, const void *b)
{
    const uint8_t *x = (*(const struct gguf_tensor *const *)a)->data;
    const uint8_t *y = (*(const struct gguf_tensor *const *)b)->data;
    return (x > y) - (x < y);
}

static int check_keys(const struct gguf *g, struct err *e)
{
    const struct gguf_kv **sorted = mem_alloc(g->n_kv * sizeof(*sorted));
    int rc = 0;
    if (!sorted)
        return err_set(e, REACH_JOB, ERR_NOMEM, "gguf: no memory to check the keys");
    for (size_t i = 0; i < g->n_kv; i++)
        sorted[i] = &g->kv[i];
    qsort(sorted, g->n_kv, sizeof(*sorted), compare_keys);
    for (size_t i = 1; i < g->n_kv && rc == 0; i++)
        if (compare_keys(&sorted[i - 1], &sorted[i]) == 0)
            rc = err_set(e, REACH_JOB, ERR_FORMAT, "gguf: key %.*s appears twice",
                         (int)sorted[i]->key.len, sorted[i]->key.s);
    free(sorted);
    return rc;
}

static int check_tensors(const struct gguf *g, struct err *e)
{
    const struct gguf_tensor **sorted = mem_alloc(g->n_tensors * sizeof(*sorted));
    int rc = 0;
    if (!sorted)
        return err_set(e, REACH_JOB, ERR_NOMEM, "gguf: no memory to check the tensors");
    for (size_t i = 0; i < g->n_tensors; i++)
        sorted[i] = &g->tensors[i];
    qsort(sorted, g->n_tensors, sizeof(*sorted), compare_names);
    for (size_t i = 1; i < g->n_tensors && rc == 0; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            rc = err_set(e, REACH_JOB, ERR_FORMAT, "gguf: tensor %s appears twice",
                         sorted[i]->name);
    qsort(sorted, g->n_tensors, sizeof(*sorted), compare_places);
    for (size_t i = 1; i < g->n_tensors && rc == 0; i++) {
        const struct gguf_tensor *a = sorted[i - 1], *b = sorted[i];
        if (a->data == b->data || (uint64_t)(b->data - a->data) < a->bytes)
            rc = err_set(e, REACH_JOB, ERR_FORMAT, "gguf: tensors %s and %s overlap", a->name,
                         b->name);
    }
    free(sorted);
    return rc;
}

/* The tensor infos come before the data whose start they decide, so offsets wait in a list of their own. */
static int take_tensors(struct gguf *g, struct cursor *c, struct err *e)
{
    uint64_t *offsets = mem_alloc(g->n_tensors * sizeof(*offsets));
    int rc = 0;
    if (!offsets)
        return err_set(e, REACH_JOB, ERR_NOMEM, "gguf: no memory for the directory");
    for (size_t i = 0; i < g->n_tensors && rc == 0; i++)
        rc = take_tensor(c, &g->tensors[i], &offsets[i], e);
    size_t start = (c->pos + (size_t)g->alignment - 1) & ~((size_t)g->alignment - 1);
    for (size_t i = 0; i < g->n_tensors && rc == 0; i++)
        rc = place_tensor(g, &g->tensors[i], offsets[i], start, e);
    free(offsets);
    return rc ? rc : check_tensors(g, e);
}

int gguf_parse(struct gguf *g, const uint8_t *bytes, size_t len, struct err *e)
{
    struct cursor c = {bytes, 0, len};
    *g = (struct gguf){.bytes = bytes, .len = len};
    int rc = take_header(g, &c, e);
    for (size_t i = 0; i < g->n_kv && rc == 0; i++)
        rc = take_pair(&c, &g->kv[i], e);
    if (rc == 0)
        rc = check_keys(g, e);
    if (rc == 0)
        rc = set_alignment(g, e);
    if (rc == 0)
        rc = take_tensors(g, &c, e);
    if (rc != 0)
        gguf_release(g);
    return rc;
}

void gguf_release(struct gguf *g)
{
    free(g->kv);
    free(g->tensors);
    *g = (struct gguf){0};
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    size_t n = strlen(key);
    for (size_t i = 0; i < g->n_kv; i++)
        if (g->kv[i].key.len == n && memcmp(g->kv[i].key.s, key, n) == 0)
            return &g->kv[i];
    return NULL;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (strcmp(g->tensors[i].name, name) == 0)
            return &g->tensors[i];
    return NULL;
}

struct gguf_string gguf_next_string(const uint8_t **p)
{
    struct gguf_string s = {(const char *)*p + 8, (size_t)le64_get(*p)};
    *p += 8 + s.len;
    return s;
}
