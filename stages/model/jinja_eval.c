#include "stages/model/jinja_eval.h"

#include "stages/base/utf8.h"

#include <stdlib.h>
#include <string.h>

const struct jvalue *jargs_get(const struct jargs *args, int i, const char *name)
{
    if (i < args->n)
        return &args->pos[i];
    for (int k = 0; k < args->n_named; k++)
        if (args->names[k].len == strlen(name) && mtext_starts(args->names[k], name))
            return &args->named[k];
    return NULL;
}

int jeval_args(struct jrun *r, const struct jnode *list, struct jargs *args)
{
    args->n = args->n_named = 0;
    int rc = 0;
    for (const struct jnode *n = list; rc == 0 && n; n = n->next) {
        if (args->n == JARGS_MAX || args->n_named == JARGS_MAX)
            return jrun_fail(r, ERR_LIMIT, "over %d arguments", JARGS_MAX);
        if (n->text.len) {
            args->names[args->n_named] = n->text;
            rc = jeval(r, n->a, &args->named[args->n_named++]);
        } else {
            rc = jeval(r, n->a, &args->pos[args->n++]);
        }
    }
    return rc;
}

/* ---- names, attributes, items ---- */

static int eval_name(struct jrun *r, struct mtext name, struct jvalue *out)
{
    for (struct jscope *s = r->scope; s; s = s->outer) {
        int rc = jrun_pay(r, 1 + s->names.n / 8);
        if (rc < 0)
            return rc;
        const struct jvalue *v = jmap_find(&s->names, name);
        if (v) {
            *out = *v;
            return 0;
        }
    }
    *out =
        jfunction_known(name) ? (struct jvalue){J_FUNCTION, .s = name} : jvalue_undefined(name);
    return 0;
}

int jattribute(struct jrun *r, const struct jvalue *in, struct mtext name, struct jvalue *out)
{
    if (in->type == J_UNDEFINED)
        return jrun_fail(r, ERR_FORMAT, "\"%.*s\" is undefined, so it has no \"%.*s\"",
                         jtext_shown(in->s), in->s.s, jtext_shown(name), name.s);
    *out = jvalue_undefined(name);
    if (in->type != J_MAP)
        return 0;
    const struct jvalue *v = jmap_find(in->map, name);
    if (v)
        *out = *v;
    return jrun_pay(r, in->map->n / 4);
}

/* Byte offset of character i of s (at most its length). */
static size_t char_offset(struct mtext s, int64_t i)
{
    size_t at = 0;
    uint32_t cp;
    for (; i > 0 && at < s.len; i--)
        at += (size_t)abs(utf8_decode(s.s + at, s.len - at, &cp));
    return at;
}

static int eval_index(struct jrun *r, const struct jvalue *box, const struct jvalue *key,
                      struct jvalue *out)
{
    *out = jvalue_undefined(key->type == J_STRING ? key->s : mtext_of("item"));
    if (box->type == J_UNDEFINED || key->type == J_STRING)
        return jattribute(r, box, key->type == J_STRING ? key->s : mtext_of("item"), out);
    if (key->type != J_INT && key->type != J_BOOL)
        return 0;
    int64_t i = key->type == J_INT ? key->i : key->b, n;
    if (box->type != J_LIST && box->type != J_STRING)
        return 0;
    int rc = jvalue_length(r, box, &n);
    if (i < 0)
        i += n;
    if (rc < 0 || i < 0 || i >= n)
        return rc;
    if (box->type == J_LIST) {
        *out = box->list->items[i];
    } else {
        size_t from = char_offset(box->s, i);
        struct mtext rest = mtext_slice(box->s, from, box->s.len);
        *out = jvalue_string(mtext_slice(rest, 0, char_offset(rest, 1)));
    }
    return 0;
}

/* Python's rules for the three parts of a slice over n items. */
static int slice_bounds(struct jrun *r, const struct jvalue part[3], int64_t n, int64_t *start,
                        int64_t *stop, int64_t *step)
{
    for (int i = 0; i < 3; i++)
        if (part[i].type != J_NONE && part[i].type != J_INT)
            return jrun_fail(r, ERR_FORMAT, "a slice by %s", jvalue_type_name(&part[i]));
    *step = part[2].type == J_INT ? part[2].i : 1;
    if (*step == 0 || *step < -INT32_MAX || *step > INT32_MAX)
        return jrun_fail(r, ERR_FORMAT, "a slice with step %lld", (long long)*step);
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    int64_t *bounds[2] = {start, stop};
    for (int i = 0; i < 2; i++) {
        int64_t v = i == (*step < 0) ? low : high;
        if (part[i].type == J_INT) {
            v = part[i].i < 0 ? part[i].i + n : part[i].i;
            v = v < low ? low : v > high ? high : v;
        }
        *bounds[i] = v;
    }
    return 0;
}

static int eval_slice(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
    struct jvalue box, part[3] = {jvalue_none(), jvalue_none(), jvalue_none()};
    const struct jnode *nodes[3] = {n->b, n->c, n->d};
    int rc = jeval(r, n->a, &box);
    for (int i = 0; rc == 0 && i < 3; i++)
        if (nodes[i])
            rc = jeval(r, nodes[i], &part[i]);
    int64_t len = 0, start = 0, stop = 0, step = 1;
    if (rc == 0 && box.type != J_LIST && box.type != J_STRING)
        return jrun_fail(r, ERR_FORMAT, "a slice of %s", jvalue_type_name(&box));
    if (rc == 0)
        rc = jvalue_length(r, &box, &len);
    if (rc == 0)
        rc = slice_bounds(r, part, len, &start, &stop, &step);
    if (rc < 0)
        return rc;
    if (box.type == J_STRING && step == 1) {
        size_t from = char_offset(box.s, start),
               to = stop > start ? char_offset(box.s, stop) : from;
        *out = jvalue_string(mtext_slice(box.s, from, to));
        return jrun_pay(r, box.s.len / 16);
    }
    struct jlist items;
    rc = jvalue_items(r, &box, &items);
    int64_t count =
        step > 0 ? (stop - start + step - 1) / step : (start - stop - step - 1) / -step;
    struct jvalue list;
    if (rc == 0)
        rc = jlist_new(r, count > 0 ? (size_t)count : 0, &list);
    if (rc < 0)
        return rc;
    for (int64_t i = 0; i < count; i++)
        list.list->items[i] = items.items[start + i * step];
    *out = list;
    if (box.type == J_STRING) {
        out->type = J_STRING;
        return jtext_join_list(r, list.list, mtext_of(""), &out->s);
    }
    return jrun_pay(r, count > 0 ? (size_t)count : 0);
}

/* ---- operators ---- */

static int eval_binary(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
    struct jvalue a, b;
    bool yes = false;
    int rc = jeval(r, n->a, &a), order = 0;
    if (rc == 0)
        rc = jeval(r, n->b, &b);
    if (rc < 0)
        return rc;
    switch (n->op) {
    case JOP_EQ:
    case JOP_NE:
        rc = jvalue_equal(r, &a, &b, &yes);
        *out = jvalue_bool(yes == (n->op == JOP_EQ));
        return rc;
    case JOP_IN:
        rc = jvalue_contains(r, &b, &a, &yes);
        *out = jvalue_bool(yes);
        return rc;
    case '<':
    case '>':
    case JOP_LE:
    case JOP_GE:
        rc = jvalue_compare(r, &a, &b, &order);
        *out = jvalue_bool(n->op == '<'      ? order < 0
                           : n->op == '>'    ? order > 0
                           : n->op == JOP_LE ? order <= 0
                                             : order >= 0);
        return rc;
    case '~': {
        struct mtext x, y;
        rc = jvalue_text(r, &a, &x);
        if (rc == 0)
            rc = jvalue_text(r, &b, &y);
        out->type = J_STRING;
        return rc < 0 ? rc : jtext_join(r, x, y, &out->s);
    }
    default:
        return jarithmetic(r, n->op, &a, &b, out);
    }
}

static int eval_sign(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
    struct jvalue v, zero = jvalue_int(0);
    int rc = jeval(r, n->a, &v);
    if (rc < 0)
        return rc;
    if (v.type == J_FLOAT) {
        *out = (struct jvalue){J_FLOAT, .f = n->kind == JN_NEG ? -v.f : v.f};
        return 0;
    }
    return jarithmetic(r, n->kind == JN_NEG ? '-' : '+', &zero, &v, out);
}

/* ---- calls and containers ---- */

static int eval_call(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
    struct jargs args;
    struct jvalue callee, self;
    bool method = n->a->kind == JN_ATTR;
    int rc = jeval(r, method ? n->a->a : n->a, method ? &self : &callee);
    if (rc == 0 && method) /* a macro in a namespace, or what the value itself can do */
        rc = jattribute(r, &self, n->a->text, &callee);
    if (rc == 0)
        rc = jeval_args(r, n->b, &args);
    if (rc < 0)
        return rc;
    r->line = n->line;
    if (callee.type == J_MACRO)
        return jcall_macro(r, callee.macro, &args, out);
    if (callee.type == J_FUNCTION)
        return jcall_function(r, callee.s, &args, out);
    if (method)
        return jcall_method(r, &self, n->a->text, &args, out);
    if (callee.type == J_UNDEFINED)
        return jrun_fail(r, ERR_UNSUPPORTED, "the function \"%.*s\" is not known here",
                         jtext_shown(callee.s), callee.s.s);
    return jrun_fail(r, ERR_FORMAT, "%s is called", jvalue_type_name(&callee));
}

static int eval_list(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
    size_t count = 0, i = 0;
    for (const struct jnode *x = n->a; x; x = x->next)
        count++;
    int rc = jlist_new(r, count, out);
    struct jlist *list = rc < 0 ? NULL : out->list;
    for (const struct jnode *x = n->a; rc == 0 && x; x = x->next)
        rc = jeval(r, x, &list->items[i++]);
    return rc;
}

static int eval_map(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
    int rc = jmap_new(r, 4, out);
    struct jmap *map = rc < 0 ? NULL : out->map;
    for (const struct jnode *x = n->a; rc == 0 && x; x = x->next) {
        struct jvalue key, value;
        rc = jeval(r, x->b, &key);
        if (rc == 0 && key.type != J_STRING)
            return jrun_fail(r, ERR_UNSUPPORTED, "%s as the key of a mapping",
                             jvalue_type_name(&key));
        if (rc == 0)
            rc = jeval(r, x->a, &value);
        if (rc == 0)
            rc = jmap_set(r, map, key.s, value);
    }
    return rc;
}

/* A filter or a test. */
static int eval_applied(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
    struct jargs args;
    struct jvalue in;
    bool yes = false;
    int rc = jeval(r, n->a, &in);
    if (rc == 0)
        rc = jeval_args(r, n->b, &args);
    if (rc < 0)
        return rc;
    r->line = n->line;
    if (n->kind == JN_FILTER)
        return jfilter(r, n->text, &in, &args, out);
    rc = jtest(r, n->text, &in, &args, &yes);
    *out = jvalue_bool(yes);
    return rc;
}

/* "and" and "or" give one of their sides, as in Python. */
static int eval_choice(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
    struct jvalue v;
    int rc = jeval(r, n->kind == JN_COND ? n->b : n->a, &v);
    if (rc < 0)
        return rc;
    bool yes = jvalue_true(&v);
    if (n->kind == JN_NOT) {
        *out = jvalue_bool(!yes);
        return 0;
    }
    if (n->kind == JN_COND) {
        *out = jvalue_undefined(mtext_of("the value without else"));
        return yes ? jeval(r, n->a, out) : n->c ? jeval(r, n->c, out) : 0;
    }
    *out = v;
    return yes == (n->kind == JN_AND) ? jeval(r, n->b, out) : 0;
}

static int eval_inner(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
    struct jvalue a, b;
    int rc;
    switch (n->kind) {
    case JN_STRING:
        *out = jvalue_string(n->text);
        return 0;
    case JN_INT:
        *out = jvalue_int(n->i);
        return 0;
    case JN_FLOAT:
        *out = (struct jvalue){J_FLOAT, .f = n->f};
        return 0;
    case JN_TRUE:
    case JN_FALSE:
        *out = jvalue_bool(n->kind == JN_TRUE);
        return 0;
    case JN_NONE:
        *out = jvalue_none();
        return 0;
    case JN_NAME:
        return eval_name(r, n->text, out);
    case JN_LIST:
        return eval_list(r, n, out);
    case JN_MAP:
        return eval_map(r, n, out);
    case JN_ATTR:
        rc = jeval(r, n->a, &a);
        r->line = n->line;
        return rc < 0 ? rc : jattribute(r, &a, n->text, out);
    case JN_INDEX:
        rc = jeval(r, n->a, &a);
        if (rc == 0)
            rc = jeval(r, n->b, &b);
        r->line = n->line;
        return rc < 0 ? rc : eval_index(r, &a, &b, out);
    case JN_SLICE:
        return eval_slice(r, n, out);
    case JN_CALL:
        return eval_call(r, n, out);
    case JN_FILTER:
    case JN_TEST:
        return eval_applied(r, n, out);
    case JN_NEG:
    case JN_POS:
        return eval_sign(r, n, out);
    case JN_BINARY:
        return eval_binary(r, n, out);
    default:
        return eval_choice(r, n, out);
    }
}

int jeval(struct jrun *r, const struct jnode *n, struct jvalue *out)
{
    int rc = jrun_enter(r);
    if (rc == 0)
        rc = eval_inner(r, n, out);
    r->depth--;
    return rc;
}
