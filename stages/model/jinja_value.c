#include "stages/model/jinja_value.h"

#include "stages/base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NESTED_MAX = 32 /* lists and maps in each other, where all are walked */ };

/* ---- the rendering ---- */

int jrun_fail(struct jrun *r, enum err_code code, const char *fmt, ...)
{
    char text[320];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(r->e, REACH_JOB, code, "chat template line %d: %s", r->line, text);
}

int jrun_pay(struct jrun *r, size_t steps)
{
    if (steps > (size_t)INT32_MAX || (r->steps -= (int64_t)steps) < 0)
        return jrun_fail(r, ERR_LIMIT, "it takes over %d steps", JINJA_STEPS_MAX);
    return 0;
}

int jrun_enter(struct jrun *r)
{
    if (++r->depth > JINJA_DEPTH_MAX)
        return jrun_fail(r, ERR_LIMIT, "it goes over %d deep", JINJA_DEPTH_MAX);
    return jrun_pay(r, 1);
}

int jrun_alloc(struct jrun *r, size_t n, void *out)
{
    int rc = jrun_pay(r, n / 256);
    void *p = rc < 0 ? NULL : arena_alloc(&r->arena, n);
    if (!p)
        return jrun_fail(r, ERR_LIMIT, "it takes too much memory");
    memcpy(out, &p, sizeof(p));
    return 0;
}

int jtext_shown(struct mtext t)
{
    return t.len < 60 ? (int)t.len : 60;
}

/* ---- lists, maps, texts ---- */

struct jvalue jvalue_undefined(struct mtext name)
{
    return (struct jvalue){J_UNDEFINED, .s = name};
}

int jlist_new(struct jrun *r, size_t n, struct jvalue *out)
{
    struct jlist *list;
    int rc = n > 1 << 20 ? jrun_fail(r, ERR_LIMIT, "a list of %zu items", n)
                         : jrun_alloc(r, sizeof(*list), &list);
    if (rc == 0)
        rc = jrun_alloc(r, n * sizeof(list->items[0]), &list->items);
    if (rc < 0)
        return rc;
    list->n = n;
    *out = (struct jvalue){J_LIST, .list = list};
    return 0;
}

int jmap_new(struct jrun *r, size_t room, struct jvalue *out)
{
    struct jmap *map;
    int rc = jrun_alloc(r, sizeof(*map), &map);
    if (rc == 0)
        rc = jrun_alloc(r, room * sizeof(map->items[0]), &map->items);
    if (rc < 0)
        return rc;
    map->cap = room;
    *out = (struct jvalue){J_MAP, .map = map};
    return 0;
}

struct jvalue *jmap_find(const struct jmap *m, struct mtext key)
{
    for (size_t i = 0; i < m->n; i++)
        if (jtext_equal(m->items[i].key, key))
            return &m->items[i].value;
    return NULL;
}

int jmap_set(struct jrun *r, struct jmap *m, struct mtext key, struct jvalue v)
{
    int rc = jrun_pay(r, m->n / 4);
    if (rc < 0)
        return rc;
    struct jvalue *old = jmap_find(m, key);
    if (old) {
        *old = v;
        return 0;
    }
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 4;
        struct jentry *items;
        rc = jrun_alloc(r, cap * sizeof(items[0]), &items);
        if (rc < 0)
            return rc;
        if (m->n)
            memcpy(items, m->items, m->n * sizeof(items[0]));
        m->items = items;
        m->cap = cap;
    }
    m->items[m->n++] = (struct jentry){key, v};
    return 0;
}

bool jtext_equal(struct mtext a, struct mtext b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.s, b.s, a.len) == 0);
}

static void copy_text(char *s, uint8_t *marks, struct mtext t)
{
    if (t.len == 0)
        return;
    memcpy(s, t.s, t.len);
    if (marks && t.marks)
        memcpy(marks, t.marks, t.len);
}

int jtext_join(struct jrun *r, struct mtext a, struct mtext b, struct mtext *out)
{
    if (a.len == 0 || b.len == 0) {
        *out = a.len ? a : b;
        return 0;
    }
    char *s;
    uint8_t *marks = NULL;
    int rc = jrun_alloc(r, a.len + b.len, &s);
    if (rc == 0 && (a.marks || b.marks))
        rc = jrun_alloc(r, a.len + b.len, &marks);
    if (rc < 0)
        return rc;
    copy_text(s, marks, a);
    copy_text(s + a.len, marks ? marks + a.len : NULL, b);
    *out = (struct mtext){s, marks, a.len + b.len};
    return 0;
}

int jtext_keep(struct jrun *r, const struct marked *m, struct mtext *out)
{
    struct mtext view = marked_view(m);
    char *s;
    uint8_t *marks;
    int rc = jrun_alloc(r, view.len, &s);
    if (rc == 0)
        rc = jrun_alloc(r, view.len, &marks);
    if (rc < 0)
        return rc;
    copy_text(s, marks, view);
    *out = (struct mtext){s, marks, view.len};
    return 0;
}

/* ---- what every value can do ---- */

bool jvalue_true(const struct jvalue *v)
{
    switch (v->type) {
    case J_UNDEFINED:
    case J_NONE:
        return false;
    case J_BOOL:
        return v->b;
    case J_INT:
        return v->i != 0;
    case J_FLOAT:
        return v->f != 0;
    case J_STRING:
        return v->s.len > 0;
    case J_LIST:
        return v->list->n > 0;
    case J_MAP:
        return v->map->n > 0 || v->map->mutable;
    default:
        return true;
    }
}

bool jvalue_is_number(const struct jvalue *v)
{
    return v->type == J_BOOL || v->type == J_INT || v->type == J_FLOAT;
}

double jvalue_number(const struct jvalue *v)
{
    return v->type == J_FLOAT ? v->f : v->type == J_BOOL ? (double)v->b : (double)v->i;
}

const char *jvalue_type_name(const struct jvalue *v)
{
    static const char *const names[] = {
        "an undefined value", "none",   "a bool",    "an integer", "a float",
        "a string",           "a list", "a mapping", "a function", "a macro"};
    return names[v->type];
}

static int equal(struct jrun *r, const struct jvalue *a, const struct jvalue *b, int depth,
                 bool *out)
{
    int rc = depth > NESTED_MAX
                 ? jrun_fail(r, ERR_LIMIT, "values nested over %d deep", NESTED_MAX)
                 : jrun_pay(r, 1 + (a->type == J_STRING ? a->s.len / 64 : 0));
    *out = false;
    if (rc < 0)
        return rc;
    if (jvalue_is_number(a) && jvalue_is_number(b)) {
        bool whole = a->type != J_FLOAT && b->type != J_FLOAT;
        int64_t x = a->type == J_BOOL ? a->b : a->i, y = b->type == J_BOOL ? b->b : b->i;
        *out = whole ? x == y : jvalue_number(a) == jvalue_number(b);
        return 0;
    }
    if (a->type != b->type)
        return 0;
    if (a->type == J_UNDEFINED || a->type == J_NONE) {
        *out = true;
    } else if (a->type == J_STRING || a->type == J_FUNCTION) {
        *out = jtext_equal(a->s, b->s);
    } else if (a->type == J_MACRO) {
        *out = a->macro == b->macro;
    } else if (a->type == J_LIST) {
        *out = a->list->n == b->list->n;
        for (size_t i = 0; rc == 0 && *out && i < a->list->n; i++)
            rc = equal(r, &a->list->items[i], &b->list->items[i], depth + 1, out);
    } else {
        *out = a->map->n == b->map->n;
        for (size_t i = 0; rc == 0 && *out && i < a->map->n; i++) {
            rc = jrun_pay(r, b->map->n / 4);
            const struct jvalue *other = jmap_find(b->map, a->map->items[i].key);
            *out = other != NULL;
            if (rc == 0 && other)
                rc = equal(r, &a->map->items[i].value, other, depth + 1, out);
        }
    }
    return rc;
}

int jvalue_equal(struct jrun *r, const struct jvalue *a, const struct jvalue *b, bool *out)
{
    return equal(r, a, b, 0, out);
}

int jvalue_compare(struct jrun *r, const struct jvalue *a, const struct jvalue *b, int *out)
{
    if (a->type == J_INT && b->type == J_INT) {
        *out = (a->i > b->i) - (a->i < b->i);
        return 0;
    }
    if (jvalue_is_number(a) && jvalue_is_number(b)) {
        double x = jvalue_number(a), y = jvalue_number(b);
        *out = (x > y) - (x < y);
        return 0;
    }
    if (a->type != J_STRING || b->type != J_STRING)
        return jrun_fail(r, ERR_FORMAT, "%s and %s have no order", jvalue_type_name(a),
                         jvalue_type_name(b));
    size_t n = a->s.len < b->s.len ? a->s.len : b->s.len;
    int c = n ? memcmp(a->s.s, b->s.s, n) : 0;
    *out = c ? (c > 0) - (c < 0) : (a->s.len > b->s.len) - (a->s.len < b->s.len);
    return jrun_pay(r, n / 64);
}

int jvalue_contains(struct jrun *r, const struct jvalue *box, const struct jvalue *item,
                    bool *out)
{
    *out = false;
    int rc = 0;
    switch (box->type) {
    case J_STRING:
        if (item->type != J_STRING)
            return jrun_fail(r, ERR_FORMAT, "only a string can be in a string, not %s",
                             jvalue_type_name(item));
        *out = item->s.len == 0 || mtext_find(box->s, item->s) < box->s.len;
        return jrun_pay(r, box->s.len / 32);
    case J_LIST:
        for (size_t i = 0; rc == 0 && !*out && i < box->list->n; i++)
            rc = jvalue_equal(r, &box->list->items[i], item, out);
        return rc;
    case J_MAP:
        *out = item->type == J_STRING && jmap_find(box->map, item->s);
        return jrun_pay(r, box->map->n / 4);
    case J_UNDEFINED:
        return 0;
    default:
        return jrun_fail(r, ERR_FORMAT, "nothing can be in %s", jvalue_type_name(box));
    }
}

void jfloat_text(double f, char out[32])
{
    if (isnan(f) || isinf(f)) {
        snprintf(out, 32, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    int digits = 1; /* as few as read back the same */
    do {
        snprintf(out, 32, "%.*e", digits - 1, f);
    } while (strtod(out, NULL) != f && digits++ < 17);
    int exponent = atoi(strchr(out, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = digits - 1 - exponent;
        snprintf(out, 32, "%.*f", decimals > 1 ? decimals : 1, f);
    }
}

int jvalue_text(struct jrun *r, const struct jvalue *v, struct mtext *out)
{
    char number[32];
    switch (v->type) {
    case J_UNDEFINED:
        *out = mtext_of("");
        return 0;
    case J_NONE:
        *out = mtext_of("None");
        return 0;
    case J_BOOL:
        *out = mtext_of(v->b ? "True" : "False");
        return 0;
    case J_STRING:
        *out = v->s;
        return 0;
    case J_INT:
    case J_FLOAT: {
        if (v->type == J_INT)
            snprintf(number, sizeof(number), "%lld", (long long)v->i);
        else
            jfloat_text(v->f, number);
        char *s;
        int rc = jrun_alloc(r, sizeof(number), &s);
        if (rc < 0)
            return rc;
        memcpy(s, number, sizeof(number));
        *out = mtext_of(s);
        return 0;
    }
    default: /* Python's repr() of these is never meant to be read by a model */
        return jrun_fail(r, ERR_UNSUPPORTED, "%s is printed as it is", jvalue_type_name(v));
    }
}

static int characters(struct jrun *r, struct mtext s, struct jlist *out)
{
    struct jvalue list;
    size_t n = 0;
    uint32_t cp;
    for (size_t i = 0; i < s.len; n++)
        i += (size_t)abs(utf8_decode(s.s + i, s.len - i, &cp));
    int rc = jrun_pay(r, n);
    if (rc == 0)
        rc = jlist_new(r, n, &list);
    if (rc < 0)
        return rc;
    n = 0;
    for (size_t i = 0, len; i < s.len; i += len) {
        len = (size_t)abs(utf8_decode(s.s + i, s.len - i, &cp));
        list.list->items[n++] = jvalue_string(mtext_slice(s, i, i + len));
    }
    *out = *list.list;
    return 0;
}

int jvalue_items(struct jrun *r, const struct jvalue *v, struct jlist *out)
{
    *out = (struct jlist){0};
    struct jvalue keys;
    switch (v->type) {
    case J_UNDEFINED:
        return 0;
    case J_LIST:
        *out = *v->list;
        return 0;
    case J_STRING:
        return characters(r, v->s, out);
    case J_MAP: {
        int rc = jlist_new(r, v->map->n, &keys);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < v->map->n; i++)
            keys.list->items[i] = jvalue_string(v->map->items[i].key);
        *out = *keys.list;
        return jrun_pay(r, v->map->n);
    }
    default:
        return jrun_fail(r, ERR_FORMAT, "%s cannot be walked over", jvalue_type_name(v));
    }
}

int jvalue_length(struct jrun *r, const struct jvalue *v, int64_t *out)
{
    *out = 0;
    uint32_t cp;
    switch (v->type) {
    case J_UNDEFINED:
        return 0;
    case J_LIST:
        *out = (int64_t)v->list->n;
        return 0;
    case J_MAP:
        *out = (int64_t)v->map->n;
        return 0;
    case J_STRING:
        for (size_t i = 0; i < v->s.len; ++*out)
            i += (size_t)abs(utf8_decode(v->s.s + i, v->s.len - i, &cp));
        return jrun_pay(r, v->s.len / 32);
    default:
        return jrun_fail(r, ERR_FORMAT, "%s has no length", jvalue_type_name(v));
    }
}
