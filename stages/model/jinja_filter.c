#include "stages/model/jinja_eval.h"

#include <stdlib.h>
#include <string.h>

typedef int filter_fn(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                      struct jvalue *out);

/* The input as a text, as most string filters take it. */
static int in_text(struct jrun *r, const struct jvalue *in, struct jvalue *out)
{
    out->type = J_STRING;
    return jvalue_text(r, in, &out->s);
}

static int filter_trim(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                       struct jvalue *out)
{
    const struct jvalue *set = jargs_get(args, 0, "chars");
    struct jvalue text;
    int rc = in_text(r, in, &text);
    if (rc < 0)
        return rc;
    *out = jvalue_string(
        jtext_strip(text.s, set && set->type == J_STRING ? &set->s : NULL, true, true));
    return jrun_pay(r, text.s.len / 64);
}

static int filter_tojson(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                         struct jvalue *out)
{
    const struct jvalue *indent = jargs_get(args, 0, "indent");
    out->type = J_STRING;
    return jvalue_json(r, in,
                       indent && indent->type == J_INT && indent->i >= 0 && indent->i < 100
                           ? (int)indent->i
                           : -1,
                       &out->s);
}

static int filter_length(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                         struct jvalue *out)
{
    (void)args;
    *out = jvalue_int(0);
    return jvalue_length(r, in, &out->i);
}

static int change_case(struct jrun *r, const struct jvalue *in, char how, struct jvalue *out)
{
    struct jvalue text;
    int rc = in_text(r, in, &text);
    out->type = J_STRING;
    return rc < 0 ? rc : jtext_case(r, text.s, how, &out->s);
}

static int filter_upper(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                        struct jvalue *out)
{
    (void)args;
    return change_case(r, in, 'u', out);
}

static int filter_lower(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                        struct jvalue *out)
{
    (void)args;
    return change_case(r, in, 'l', out);
}

static int filter_capitalize(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                             struct jvalue *out)
{
    (void)args;
    return change_case(r, in, 'c', out);
}

static int filter_title(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                        struct jvalue *out)
{
    (void)args;
    return change_case(r, in, 't', out);
}

static int filter_default(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                          struct jvalue *out)
{
    (void)r;
    const struct jvalue *other = jargs_get(args, 0, "default_value"),
                        *falsy = jargs_get(args, 1, "boolean");
    bool replace = in->type == J_UNDEFINED || (falsy && jvalue_true(falsy) && !jvalue_true(in));
    *out = !replace ? *in : other ? *other : jvalue_string(mtext_of(""));
    return 0;
}

static int filter_first(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                        struct jvalue *out)
{
    (void)args;
    struct jlist items;
    int rc = jvalue_items(r, in, &items);
    *out = rc == 0 && items.n ? items.items[0] : jvalue_undefined(mtext_of("the first item"));
    return rc;
}

static int filter_last(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                       struct jvalue *out)
{
    (void)args;
    struct jlist items;
    int rc = jvalue_items(r, in, &items);
    *out = rc == 0 && items.n ? items.items[items.n - 1]
                              : jvalue_undefined(mtext_of("the last item"));
    return rc;
}

static int filter_replace(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                          struct jvalue *out)
{
    const struct jvalue *from = jargs_get(args, 0, "old"), *to = jargs_get(args, 1, "new");
    const struct jvalue *most = jargs_get(args, 2, "count");
    struct jvalue text;
    int rc = in_text(r, in, &text);
    if (rc < 0)
        return rc;
    if (!from || from->type != J_STRING || !to || to->type != J_STRING)
        return jrun_fail(r, ERR_FORMAT, "replace wants two strings");
    out->type = J_STRING;
    return jtext_replace(r, text.s, from->s, to->s, most && most->type == J_INT ? most->i : -1,
                         &out->s);
}

static int filter_string(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                         struct jvalue *out)
{
    (void)args;
    return in_text(r, in, out);
}

static int filter_safe(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                       struct jvalue *out)
{
    (void)r;
    (void)args;
    *out = *in;
    return 0;
}

/* The items as a list of its own. Of none: none, as the filters that Jinja2 runs late have it. */
static int copy_items(struct jrun *r, const struct jvalue *in, struct jvalue *out)
{
    struct jlist items = {0};
    int rc = in->type == J_NONE ? 0 : jvalue_items(r, in, &items);
    if (rc == 0)
        rc = jrun_pay(r, items.n);
    if (rc == 0)
        rc = jlist_new(r, items.n, out);
    if (rc == 0 && items.n)
        memcpy(out->list->items, items.items, items.n * sizeof(items.items[0]));
    return rc;
}

static int filter_list(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                       struct jvalue *out)
{
    (void)args;
    return copy_items(r, in, out);
}

static int filter_reverse(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                          struct jvalue *out)
{
    (void)args;
    int rc = copy_items(r, in, out);
    if (rc < 0)
        return rc;
    struct jlist *list = out->list;
    for (size_t i = 0; i < list->n / 2; i++) {
        struct jvalue swap = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = swap;
    }
    if (in->type != J_STRING)
        return 0;
    out->type = J_STRING;
    return jtext_join_list(r, list, mtext_of(""), &out->s);
}

static int filter_unique(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                         struct jvalue *out)
{
    (void)args;
    int rc = copy_items(r, in, out);
    struct jlist *list = rc < 0 ? NULL : out->list;
    size_t kept = 0;
    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        bool seen = false;
        for (size_t k = 0; rc == 0 && !seen && k < kept; k++)
            rc = jvalue_equal(r, &list->items[k], &list->items[i], &seen);
        if (!seen)
            list->items[kept++] = list->items[i];
    }
    if (rc == 0)
        list->n = kept;
    return rc;
}

static int filter_items(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                        struct jvalue *out)
{
    if (in->type == J_UNDEFINED)
        return jlist_new(r, 0, out);
    return jcall_method(r, in, mtext_of("items"), args, out);
}

static int filter_abs(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                      struct jvalue *out)
{
    (void)args;
    *out = *in;
    if (in->type == J_FLOAT)
        out->f = in->f < 0 ? -in->f : in->f;
    else if (in->type != J_INT || in->i == INT64_MIN)
        return jrun_fail(r, ERR_FORMAT, "abs of %s", jvalue_type_name(in));
    else
        out->i = in->i < 0 ? -in->i : in->i;
    return 0;
}

/* The number at the start of a string, as long as nothing follows it. */
static bool read_number(struct mtext s, double *out)
{
    char text[64], *end;
    s = mtext_strip(s);
    if (s.len == 0 || s.len >= sizeof(text))
        return false;
    memcpy(text, s.s, s.len);
    text[s.len] = '\0';
    *out = strtod(text, &end);
    return *end == '\0';
}

static int filter_int(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                      struct jvalue *out)
{
    (void)r;
    const struct jvalue *other = jargs_get(args, 0, "default");
    double v = 0;
    bool ok = jvalue_is_number(in);
    if (ok)
        v = jvalue_number(in);
    else if (in->type == J_STRING)
        ok = read_number(in->s, &v);
    if (in->type == J_INT)
        *out = *in;
    else if (ok && v > -9e15 && v < 9e15)
        *out = jvalue_int((int64_t)v);
    else
        *out = other ? *other : jvalue_int(0);
    return 0;
}

static int filter_float(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                        struct jvalue *out)
{
    (void)r;
    const struct jvalue *other = jargs_get(args, 0, "default");
    double v = 0;
    bool ok = jvalue_is_number(in);
    if (ok)
        v = jvalue_number(in);
    else if (in->type == J_STRING)
        ok = read_number(in->s, &v);
    *out = !ok && other ? *other : (struct jvalue){J_FLOAT, .f = v};
    return 0;
}

/* ---- filters that call others ---- */

/* item.a.b for the attribute "a.b" */
static int follow(struct jrun *r, const struct jvalue *item, struct mtext path,
                  struct jvalue *out)
{
    *out = *item;
    int rc = 0;
    for (bool more = true; rc == 0 && more;) {
        size_t dot = mtext_find(path, mtext_of("."));
        struct jvalue inner = *out;
        rc = jattribute(r, &inner, mtext_slice(path, 0, dot), out);
        more = dot < path.len;
        if (more)
            path = mtext_slice(path, dot + 1, path.len);
    }
    return rc;
}

static int filter_join(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                       struct jvalue *out)
{
    const struct jvalue *sep = jargs_get(args, 0, "d"),
                        *attribute = jargs_get(args, 1, "attribute");
    int rc = copy_items(r, in, out);
    if (rc < 0)
        return rc;
    struct jlist *list = out->list;
    for (size_t i = 0; rc == 0 && attribute && attribute->type == J_STRING && i < list->n;
         i++) {
        struct jvalue item = list->items[i];
        rc = follow(r, &item, attribute->s, &list->items[i]);
    }
    out->type = J_STRING;
    return rc < 0 ? rc
                  : jtext_join_list(
                        r, list, sep && sep->type == J_STRING ? sep->s : mtext_of(""), &out->s);
}

/* Arguments from the i-th on, for a filter or test named by another. */
static void shift_args(const struct jargs *args, int i, struct jargs *out)
{
    *out = *args;
    out->n = args->n > i ? args->n - i : 0;
    for (int k = 0; k < out->n; k++)
        out->pos[k] = args->pos[k + i];
}

/* Keep the items for which a test holds: of the item, or of one of its attributes. */
static int select_items(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                        bool attribute, bool keep, struct jvalue *out)
{
    if (attribute && (args->n == 0 || args->pos[0].type != J_STRING))
        return jrun_fail(r, ERR_FORMAT, "selectattr wants the name of an attribute");
    const struct jvalue *test = args->n > attribute ? &args->pos[attribute] : NULL;
    if (test && test->type != J_STRING)
        return jrun_fail(r, ERR_FORMAT, "%s as the name of a test", jvalue_type_name(test));
    struct jargs rest;
    shift_args(args, attribute + 1, &rest);
    int rc = copy_items(r, in, out);
    struct jlist *list = rc < 0 ? NULL : out->list;
    size_t kept = 0;
    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        struct jvalue v = list->items[i];
        if (attribute)
            rc = follow(r, &list->items[i], args->pos[0].s, &v);
        bool yes = jvalue_true(&v);
        if (rc == 0 && test)
            rc = jtest(r, test->s, &v, &rest, &yes);
        if (rc == 0 && yes == keep)
            list->items[kept++] = list->items[i];
    }
    if (rc == 0)
        list->n = kept;
    return rc;
}

static int filter_selectattr(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                             struct jvalue *out)
{
    return select_items(r, in, args, true, true, out);
}

static int filter_rejectattr(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                             struct jvalue *out)
{
    return select_items(r, in, args, true, false, out);
}

static int filter_select(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                         struct jvalue *out)
{
    return select_items(r, in, args, false, true, out);
}

static int filter_reject(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                         struct jvalue *out)
{
    return select_items(r, in, args, false, false, out);
}

static int filter_map(struct jrun *r, const struct jvalue *in, const struct jargs *args,
                      struct jvalue *out)
{
    const struct jvalue *attribute = jargs_get(args, JARGS_MAX, "attribute");
    const struct jvalue *other = jargs_get(args, JARGS_MAX, "default");
    const struct jvalue *name = attribute ? attribute : args->n ? &args->pos[0] : NULL;
    if (!name || name->type != J_STRING)
        return jrun_fail(r, ERR_FORMAT, "map wants a filter or an attribute");
    struct jargs rest;
    shift_args(args, 1, &rest);
    int rc = copy_items(r, in, out);
    for (size_t i = 0; rc == 0 && i < out->list->n; i++) {
        struct jvalue item = out->list->items[i], *to = &out->list->items[i];
        rc = attribute ? follow(r, &item, name->s, to) : jfilter(r, name->s, &item, &rest, to);
        if (rc == 0 && to->type == J_UNDEFINED && other)
            *to = *other;
    }
    return rc;
}

static const struct {
    const char *name;
    filter_fn *filter;
} filters[] = {
    {"trim", filter_trim},
    {"tojson", filter_tojson},
    {"length", filter_length},
    {"count", filter_length},
    {"join", filter_join},
    {"upper", filter_upper},
    {"lower", filter_lower},
    {"default", filter_default},
    {"d", filter_default},
    {"first", filter_first},
    {"last", filter_last},
    {"replace", filter_replace},
    {"string", filter_string},
    {"list", filter_list},
    {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr},
    {"select", filter_select},
    {"reject", filter_reject},
    {"map", filter_map},
    {"items", filter_items},
    {"capitalize", filter_capitalize},
    {"title", filter_title},
    {"reverse", filter_reverse},
    {"unique", filter_unique},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"safe", filter_safe},
};

int jfilter(struct jrun *r, struct mtext name, const struct jvalue *in,
            const struct jargs *args, struct jvalue *out)
{
    for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
        if (name.len != strlen(filters[i].name) || !mtext_starts(name, filters[i].name))
            continue;
        int rc = jrun_enter(r); /* map('map', ...) */
        if (rc == 0)
            rc = filters[i].filter(r, in, args, out);
        r->depth--;
        return rc;
    }
    return jrun_fail(r, ERR_UNSUPPORTED, "the filter \"%.*s\" is not known here",
                     jtext_shown(name), name.s);
}
