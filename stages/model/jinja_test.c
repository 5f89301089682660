/* What may follow "is". */
#include "stages/model/jinja_eval.h"

#include <string.h>

typedef bool plain_test_fn(const struct jvalue *v);

static bool is_defined(const struct jvalue *v)
{
    return v->type != J_UNDEFINED;
}

static bool is_undefined(const struct jvalue *v)
{
    return v->type == J_UNDEFINED;
}

static bool is_none(const struct jvalue *v)
{
    return v->type == J_NONE;
}

static bool is_string(const struct jvalue *v)
{
    return v->type == J_STRING;
}

static bool is_mapping(const struct jvalue *v)
{
    return v->type == J_MAP;
}

static bool is_iterable(const struct jvalue *v)
{
    return v->type == J_STRING || v->type == J_LIST || v->type == J_MAP ||
           v->type == J_UNDEFINED;
}

static bool is_boolean(const struct jvalue *v)
{
    return v->type == J_BOOL;
}

static bool is_true(const struct jvalue *v)
{
    return v->type == J_BOOL && v->b;
}

static bool is_false(const struct jvalue *v)
{
    return v->type == J_BOOL && !v->b;
}

static bool is_integer(const struct jvalue *v)
{
    return v->type == J_INT;
}

static bool is_float(const struct jvalue *v)
{
    return v->type == J_FLOAT;
}

static bool is_callable(const struct jvalue *v)
{
    return v->type == J_FUNCTION || v->type == J_MACRO;
}

static bool is_odd(const struct jvalue *v)
{
    return v->type == J_INT && v->i % 2 != 0;
}

static bool is_even(const struct jvalue *v)
{
    return v->type == J_INT && v->i % 2 == 0;
}

static const struct {
    const char *name;
    plain_test_fn *test;
} plain[] = {{"defined", is_defined},
             {"undefined", is_undefined},
             {"none", is_none},
             {"string", is_string},
             {"mapping", is_mapping},
             {"iterable", is_iterable},
             {"sequence", is_iterable},
             {"boolean", is_boolean},
             {"true", is_true},
             {"false", is_false},
             {"integer", is_integer},
             {"float", is_float},
             {"number", jvalue_is_number},
             {"callable", is_callable},
             {"odd", is_odd},
             {"even", is_even}};

/* Tests that compare with an argument, under all their names. */
static const struct {
    const char *name;
    char how;
} comparing[] = {{"equalto", '='},    {"eq", '='},          {"==", '='},       {"sameas", '='},
                 {"ne", '!'},         {"lt", '<'},          {"lessthan", '<'}, {"le", 'l'},
                 {"gt", '>'},         {"greaterthan", '>'}, {"ge", 'g'},       {"in", 'i'},
                 {"divisibleby", '%'}};

static int compare(struct jrun *r, char how, const struct jvalue *a, const struct jvalue *b,
                   bool *out)
{
    int order = 0, rc;
    if (how == '=' || how == '!') {
        rc = jvalue_equal(r, a, b, out);
        *out = *out == (how == '=');
        return rc;
    }
    if (how == 'i')
        return jvalue_contains(r, b, a, out);
    if (how == '%') {
        if (a->type != J_INT || b->type != J_INT || b->i == 0)
            return jrun_fail(r, ERR_FORMAT, "divisibleby of %s", jvalue_type_name(b));
        *out = b->i == -1 || a->i % b->i == 0;
        return 0;
    }
    rc = jvalue_compare(r, a, b, &order);
    *out = how == '<'   ? order < 0
           : how == 'l' ? order <= 0
           : how == '>' ? order > 0
                        : order >= 0;
    return rc;
}

int jtest(struct jrun *r, struct mtext name, const struct jvalue *in, const struct jargs *args,
          bool *out)
{
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        if (name.len == strlen(plain[i].name) && mtext_starts(name, plain[i].name)) {
            *out = plain[i].test(in);
            return 0;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(comparing); i++) {
        if (name.len != strlen(comparing[i].name) || !mtext_starts(name, comparing[i].name))
            continue;
        if (args->n != 1)
            return jrun_fail(r, ERR_FORMAT, "the test \"%s\" wants one value",
                             comparing[i].name);
        return compare(r, comparing[i].how, in, &args->pos[0], out);
    }
    return jrun_fail(r, ERR_UNSUPPORTED, "the test \"%.*s\" is not known here",
                     jtext_shown(name), name.s);
}
