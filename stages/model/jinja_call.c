/* The functions every template has, and the methods of strings, mappings and lists. */
#include "stages/model/chat_date.h"
#include "stages/model/jinja_eval.h"

#include <string.h>

static bool is(struct mtext name, const char *s)
{
    return name.len == strlen(s) && mtext_starts(name, s);
}

/* Argument i as a string; NULL with an error when it is another thing. */
static const struct mtext *text_arg(struct jrun *r, const struct jargs *args, int i,
                                    const char *what)
{
    const struct jvalue *v = jargs_get(args, i, what);
    if (v && v->type == J_STRING)
        return &v->s;
    jrun_fail(r, ERR_FORMAT, "%s wants a string, not %s", what,
              v ? jvalue_type_name(v) : "nothing");
    return NULL;
}

/* ---- functions ---- */

static int call_raise(struct jrun *r, const struct jargs *args, struct jvalue *out)
{
    (void)out;
    struct mtext text = mtext_of("");
    int rc = args->n ? jvalue_text(r, &args->pos[0], &text) : 0;
    return rc < 0 ? rc
                  : jrun_fail(r, ERR_FORMAT, "it says: %.*s",
                              text.len < 240 ? (int)text.len : 240, text.s);
}

static int call_strftime(struct jrun *r, const struct jargs *args, struct jvalue *out)
{
    const struct mtext *fmt = text_arg(r, args, 0, "strftime_now");
    if (!fmt)
        return -(int)r->e->code;
    if (!r->in->date)
        return jrun_fail(r, ERR_CONFIG,
                         "it prints the date; set prompt.date to a fixed one, such as 26 Jul "
                         "2024, so that prompts and answers stay the same from day to day");
    struct buf b;
    buf_init(&b, 4096);
    int rc = chat_date_format(r->in->date, fmt->s, fmt->len, &b, r->e);
    char *s;
    if (rc == 0)
        rc = jrun_alloc(r, b.len, &s);
    if (rc == 0) {
        memcpy(s, b.len ? b.data : "", b.len);
        *out = jvalue_string((struct mtext){s, NULL, b.len});
    }
    buf_release(&b);
    return rc;
}

/* namespace() and dict(): a mapping of the keyword arguments. */
static int call_dict(struct jrun *r, const struct jargs *args, struct jvalue *out)
{
    int rc = jmap_new(r, (size_t)args->n_named, out);
    if (rc == 0 && args->n && args->pos[0].type == J_MAP)
        for (size_t i = 0; rc == 0 && i < args->pos[0].map->n; i++)
            rc = jmap_set(r, out->map, args->pos[0].map->items[i].key,
                          args->pos[0].map->items[i].value);
    for (int i = 0; rc == 0 && i < args->n_named; i++)
        rc = jmap_set(r, out->map, args->names[i], args->named[i]);
    return rc;
}

static int call_namespace(struct jrun *r, const struct jargs *args, struct jvalue *out)
{
    int rc = call_dict(r, args, out);
    if (rc == 0)
        out->map->mutable = true;
    return rc;
}

static int call_range(struct jrun *r, const struct jargs *args, struct jvalue *out)
{
    int64_t v[3] = {0, 0, 1};
    for (int i = 0; i < args->n && i < 3; i++) {
        if (args->pos[i].type != J_INT)
            return jrun_fail(r, ERR_FORMAT, "range() of %s", jvalue_type_name(&args->pos[i]));
        v[args->n == 1 ? 1 : i] = args->pos[i].i;
    }
    int64_t most = INT32_MAX;
    for (int i = 0; i < 3; i++)
        if (v[i] > most || v[i] < -most || (i == 2 && v[i] == 0) || args->n == 0)
            return jrun_fail(r, ERR_LIMIT, "range() over %lld", (long long)v[i]);
    int64_t n = v[2] > 0 ? (v[1] - v[0] + v[2] - 1) / v[2] : (v[0] - v[1] - v[2] - 1) / -v[2];
    n = n > 0 ? n : 0;
    int rc = jrun_pay(r, (size_t)n);
    if (rc == 0)
        rc = jlist_new(r, (size_t)n, out);
    for (int64_t i = 0; rc == 0 && i < n; i++)
        out->list->items[i] = jvalue_int(v[0] + i * v[2]);
    return rc;
}

typedef int call_fn(struct jrun *r, const struct jargs *args, struct jvalue *out);

static const struct {
    const char *name;
    call_fn *call;
} functions[] = {{"raise_exception", call_raise},
                 {"strftime_now", call_strftime},
                 {"namespace", call_namespace},
                 {"dict", call_dict},
                 {"range", call_range}};

bool jfunction_known(struct mtext name)
{
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        if (is(name, functions[i].name))
            return true;
    return false;
}

int jcall_function(struct jrun *r, struct mtext name, const struct jargs *args,
                   struct jvalue *out)
{
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        if (is(name, functions[i].name))
            return functions[i].call(r, args, out);
    return jrun_fail(r, ERR_BUG, "an unknown function");
}

/* ---- methods of strings ---- */

static int starts_or_ends(struct jrun *r, struct mtext s, bool at_end, const struct jargs *args,
                          struct jvalue *out)
{
    struct jlist one = {args->n ? (struct jvalue[]){args->pos[0]} : NULL, args->n > 0};
    const struct jlist *list =
        args->n && args->pos[0].type == J_LIST ? args->pos[0].list : &one;
    *out = jvalue_bool(false);
    if (list->n == 0)
        return args->n ? 0 : jrun_fail(r, ERR_FORMAT, "startswith() or endswith() of nothing");
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i].type != J_STRING)
            return jrun_fail(r, ERR_FORMAT, "a string that starts or ends with %s",
                             jvalue_type_name(&list->items[i]));
        struct mtext x = list->items[i].s;
        if (x.len <= s.len)
            out->b = out->b || jtext_equal(at_end ? mtext_slice(s, s.len - x.len, s.len)
                                                  : mtext_slice(s, 0, x.len),
                                           x);
    }
    return jrun_pay(r, list->n);
}

static int string_split(struct jrun *r, struct mtext s, const struct jargs *args,
                        struct jvalue *out)
{
    const struct jvalue *sep = jargs_get(args, 0, "sep"),
                        *most = jargs_get(args, 1, "maxsplit");
    if (sep && sep->type != J_STRING && sep->type != J_NONE)
        return jrun_fail(r, ERR_FORMAT, "split() at %s", jvalue_type_name(sep));
    if (sep && sep->type == J_STRING && sep->s.len == 0)
        return jrun_fail(r, ERR_FORMAT, "split() at an empty string");
    return jtext_split(r, s, sep && sep->type == J_STRING ? sep->s : mtext_of(""),
                       most && most->type == J_INT ? most->i : -1, out);
}

static int string_strip(struct jrun *r, struct mtext s, bool left, bool right,
                        const struct jargs *args, struct jvalue *out)
{
    const struct jvalue *set = jargs_get(args, 0, "chars");
    if (set && set->type != J_STRING && set->type != J_NONE)
        return jrun_fail(r, ERR_FORMAT, "strip() of %s", jvalue_type_name(set));
    *out = jvalue_string(
        jtext_strip(s, set && set->type == J_STRING ? &set->s : NULL, left, right));
    return jrun_pay(r, s.len / 64);
}

/* The method `name` of a string that wants strings; 1 when it is not one of these. */
static int string_search(struct jrun *r, struct mtext s, struct mtext name,
                         const struct jargs *args, struct jvalue *out)
{
    bool find = is(name, "find"), count = is(name, "count"), replace = is(name, "replace");
    bool prefix = is(name, "removeprefix"), suffix = is(name, "removesuffix");
    if (!find && !count && !replace && !prefix && !suffix)
        return 1;
    const struct mtext *what = text_arg(r, args, 0, replace ? "replace" : "this method");
    const struct mtext *with = !what ? NULL : replace ? text_arg(r, args, 1, "replace") : what;
    int rc = with ? jrun_pay(r, s.len / 32) : -(int)r->e->code;
    if (rc < 0)
        return rc;
    if (replace) {
        const struct jvalue *most = jargs_get(args, 2, "count");
        out->type = J_STRING;
        return jtext_replace(r, s, *what, *with, most && most->type == J_INT ? most->i : -1,
                             &out->s);
    }
    size_t n = what->len;
    if (prefix || suffix) {
        bool has = n <= s.len &&
                   jtext_equal(prefix ? mtext_slice(s, 0, n) : mtext_slice(s, s.len - n, s.len),
                               *what);
        *out = jvalue_string(!has     ? s
                             : prefix ? mtext_slice(s, n, s.len)
                                      : mtext_slice(s, 0, s.len - n));
        return 0;
    }
    struct jvalue before = jvalue_string(mtext_slice(s, 0, mtext_find(s, *what)));
    *out = jvalue_int(0);
    if (find && before.s.len == s.len && n > 0)
        out->i = -1;
    else if (find)
        return jvalue_length(r, &before, &out->i);
    for (size_t at; count && n > 0 && (at = mtext_find(s, *what)) < s.len; out->i++)
        s = mtext_slice(s, at + n, s.len);
    return 0;
}

static int string_method(struct jrun *r, struct mtext s, struct mtext name,
                         const struct jargs *args, struct jvalue *out)
{
    static const char *const cases[] = {"upper", "lower", "capitalize", "title"};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (is(name, cases[i])) {
            out->type = J_STRING;
            return jtext_case(r, s, cases[i][0], &out->s);
        }
    }
    if (is(name, "strip"))
        return string_strip(r, s, true, true, args, out);
    if (is(name, "lstrip"))
        return string_strip(r, s, true, false, args, out);
    if (is(name, "rstrip"))
        return string_strip(r, s, false, true, args, out);
    if (is(name, "startswith") || is(name, "endswith"))
        return starts_or_ends(r, s, is(name, "endswith"), args, out);
    if (is(name, "split"))
        return string_split(r, s, args, out);
    if (is(name, "join")) {
        struct jlist items;
        struct jvalue none = jvalue_none();
        int rc = jvalue_items(r, args->n ? &args->pos[0] : &none, &items);
        out->type = J_STRING;
        return rc < 0 ? rc : jtext_join_list(r, &items, s, &out->s);
    }
    return string_search(r, s, name, args, out);
}

/* ---- methods of mappings ---- */

/* keys, values, items, get; 1 when it is none of these. */
static int map_method(struct jrun *r, const struct jmap *m, struct mtext name,
                      const struct jargs *args, struct jvalue *out)
{
    bool keys = is(name, "keys"), values = is(name, "values"), items = is(name, "items");
    if (is(name, "get")) {
        const struct mtext *key = text_arg(r, args, 0, "get");
        if (!key)
            return -(int)r->e->code;
        const struct jvalue *v = jmap_find(m, *key), *other = jargs_get(args, 1, "default");
        *out = v ? *v : other ? *other : jvalue_none();
        return jrun_pay(r, m->n / 4);
    }
    if (!keys && !values && !items)
        return 1;
    int rc = jrun_pay(r, m->n);
    if (rc == 0)
        rc = jlist_new(r, m->n, out);
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        struct jvalue *item = &out->list->items[i];
        if (items) {
            rc = jlist_new(r, 2, item);
            if (rc == 0) {
                item->list->items[0] = jvalue_string(m->items[i].key);
                item->list->items[1] = m->items[i].value;
            }
        } else {
            *item = keys ? jvalue_string(m->items[i].key) : m->items[i].value;
        }
    }
    return rc;
}

int jcall_method(struct jrun *r, const struct jvalue *self, struct mtext name,
                 const struct jargs *args, struct jvalue *out)
{
    int rc = self->type == J_STRING ? string_method(r, self->s, name, args, out)
             : self->type == J_MAP  ? map_method(r, self->map, name, args, out)
                                    : 1;
    if (rc <= 0)
        return rc;
    return jrun_fail(r, ERR_UNSUPPORTED, "%s has no method \"%.*s\" here",
                     jvalue_type_name(self), jtext_shown(name), name.s);
}
