/* Scalar values of a GGUF file, by key and wanted type. */
#include "stages/base/le.h"
#include "stages/model/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static int wrong(struct err *e, const char *key, const char *wanted)
{
    return err_set(e, REACH_JOB, ERR_FORMAT, "gguf: %s is not %s", key, wanted);
}

/* The value as a 64-bit pattern; *negative tells how to read it. False when it is no integer. */
static bool integer(const struct gguf_kv *kv, uint64_t *v, bool *negative)
{
    int64_t s = 0;
    switch (kv->type) {
    case GGUF_U8:
        *v = kv->data[0];
        break;
    case GGUF_U16:
        *v = le16_get(kv->data);
        break;
    case GGUF_U32:
        *v = le32_get(kv->data);
        break;
    case GGUF_U64:
        *v = le64_get(kv->data);
        break;
    case GGUF_I8:
        *v = (uint64_t)(s = (int8_t)kv->data[0]);
        break;
    case GGUF_I16:
        *v = (uint64_t)(s = (int16_t)le16_get(kv->data));
        break;
    case GGUF_I32:
        *v = (uint64_t)(s = (int32_t)le32_get(kv->data));
        break;
    case GGUF_I64:
        *v = (uint64_t)(s = (int64_t)le64_get(kv->data));
        break;
    default:
        return false;
    }
    *negative = s < 0;
    return true;
}

int gguf_u64(const struct gguf *g, const char *key, uint64_t max, uint64_t *out, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    uint64_t v;
    bool negative;
    if (!kv)
        return 1;
    if (!integer(kv, &v, &negative))
        return wrong(e, key, "an integer");
    if (negative)
        return err_set(e, REACH_JOB, ERR_FORMAT, "gguf: %s is negative", key);
    if (v > max)
        return err_set(e, REACH_JOB, ERR_FORMAT,
                       "gguf: %s is %" PRIu64 ", at most %" PRIu64 " is allowed", key, v, max);
    *out = v;
    return 0;
}

int gguf_f64(const struct gguf *g, const char *key, double *out, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    double v;
    if (!kv)
        return 1;
    if (kv->type == GGUF_F32) {
        uint32_t bits = le32_get(kv->data);
        float f;
        memcpy(&f, &bits, sizeof(f));
        v = (double)f;
    } else if (kv->type == GGUF_F64) {
        uint64_t bits = le64_get(kv->data);
        memcpy(&v, &bits, sizeof(v));
    } else {
        return wrong(e, key, "a floating-point number");
    }
    if (!isfinite(v))
        return wrong(e, key, "a finite number");
    *out = v;
    return 0;
}

int gguf_bool(const struct gguf *g, const char *key, bool *out, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 1;
    if (kv->type != GGUF_BOOL)
        return wrong(e, key, "a truth value");
    *out = kv->data[0] != 0;
    return 0;
}

int gguf_str(const struct gguf *g, const char *key, struct gguf_string *out, struct err *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return 1;
    if (kv->type != GGUF_STRING)
        return wrong(e, key, "a string");
    const uint8_t *p = kv->data;
    *out = gguf_next_string(&p);
    return 0;
}
