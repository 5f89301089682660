/* + - * / // % ** on numbers, strings and lists, by Python's rules. */
#include "stages/model/jinja_eval.h"

#include <math.h>
#include <string.h>

static int overflow(struct jrun *r)
{
    return jrun_fail(r, ERR_LIMIT, "a number over 64 bits");
}

static int floor_div(struct jrun *r, int64_t a, int64_t b, int64_t *quotient, int64_t *rest)
{
    if (b == 0)
        return jrun_fail(r, ERR_FORMAT, "a division by zero");
    if (b == -1) { /* INT64_MIN / -1 traps */
        *rest = 0;
        return __builtin_sub_overflow((int64_t)0, a, quotient) ? overflow(r) : 0;
    }
    *quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
    *rest = a - *quotient * b;
    return 0;
}

static int power(struct jrun *r, int64_t a, int64_t b, int64_t *out)
{
    if (b < 0 || b > 4096)
        return jrun_fail(r, ERR_UNSUPPORTED, "the power %lld", (long long)b);
    *out = 1;
    for (int64_t i = 0; i < b; i++)
        if (__builtin_mul_overflow(*out, a, out))
            return overflow(r);
    return 0;
}

static int whole_numbers(struct jrun *r, int op, int64_t a, int64_t b, struct jvalue *out)
{
    int64_t v = 0, rest;
    int rc = 0;
    switch (op) {
    case '+':
        rc = __builtin_add_overflow(a, b, &v) ? overflow(r) : 0;
        break;
    case '-':
        rc = __builtin_sub_overflow(a, b, &v) ? overflow(r) : 0;
        break;
    case '*':
        rc = __builtin_mul_overflow(a, b, &v) ? overflow(r) : 0;
        break;
    case JOP_FLOORDIV:
        rc = floor_div(r, a, b, &v, &rest);
        break;
    case '%':
        rc = floor_div(r, a, b, &rest, &v);
        break;
    default:
        rc = power(r, a, b, &v);
        break;
    }
    *out = jvalue_int(v);
    return rc;
}

static int real_numbers(struct jrun *r, int op, double a, double b, struct jvalue *out)
{
    if ((op == '/' || op == '%' || op == JOP_FLOORDIV) && b == 0)
        return jrun_fail(r, ERR_FORMAT, "a division by zero");
    double q = op == '/' || op == '%' || op == JOP_FLOORDIV ? a / b : 0;
    double v = op == '+'            ? a + b
               : op == '-'          ? a - b
               : op == '*'          ? a * b
               : op == '/'          ? q
               : op == JOP_FLOORDIV ? floor(q)
               : op == '%'          ? a - floor(q) * b
                                    : pow(a, b);
    *out = (struct jvalue){J_FLOAT, .f = v};
    return 0;
}

static int repeat(struct jrun *r, struct mtext s, int64_t times, struct jvalue *out)
{
    *out = jvalue_string(mtext_of(""));
    if (times <= 0 || s.len == 0)
        return 0;
    if (times > 1 << 20 || s.len > (size_t)(1 << 20) / (size_t)times)
        return jrun_fail(r, ERR_LIMIT, "a string repeated %lld times", (long long)times);
    char *text;
    uint8_t *marks = NULL;
    int rc = jrun_alloc(r, s.len * (size_t)times, &text);
    if (rc == 0 && s.marks)
        rc = jrun_alloc(r, s.len * (size_t)times, &marks);
    for (size_t i = 0; rc == 0 && i < (size_t)times; i++) {
        memcpy(text + i * s.len, s.s, s.len);
        if (marks)
            memcpy(marks + i * s.len, s.marks, s.len);
    }
    if (rc == 0)
        out->s = (struct mtext){text, marks, s.len * (size_t)times};
    return rc;
}

static int join_lists(struct jrun *r, const struct jlist *a, const struct jlist *b,
                      struct jvalue *out)
{
    int rc = jlist_new(r, a->n + b->n, out);
    if (rc < 0)
        return rc;
    if (a->n)
        memcpy(out->list->items, a->items, a->n * sizeof(a->items[0]));
    if (b->n)
        memcpy(out->list->items + a->n, b->items, b->n * sizeof(b->items[0]));
    return 0;
}

int jarithmetic(struct jrun *r, int op, const struct jvalue *a, const struct jvalue *b,
                struct jvalue *out)
{
    if (jvalue_is_number(a) && jvalue_is_number(b)) {
        if (op == '/' || a->type == J_FLOAT || b->type == J_FLOAT)
            return real_numbers(r, op, jvalue_number(a), jvalue_number(b), out);
        return whole_numbers(r, op, a->type == J_BOOL ? a->b : a->i,
                             b->type == J_BOOL ? b->b : b->i, out);
    }
    if (op == '+' && a->type == J_STRING && b->type == J_STRING) {
        *out = *a;
        return jtext_join(r, a->s, b->s, &out->s);
    }
    if (op == '+' && a->type == J_LIST && b->type == J_LIST)
        return join_lists(r, a->list, b->list, out);
    if (op == '*' && a->type == J_STRING && b->type == J_INT)
        return repeat(r, a->s, b->i, out);
    const struct jvalue *bad = a->type == J_UNDEFINED ? a : b;
    if (bad->type == J_UNDEFINED)
        return jrun_fail(r, ERR_FORMAT, "\"%.*s\" is undefined", jtext_shown(bad->s), bad->s.s);
    return jrun_fail(r, ERR_FORMAT, "the operator %s between %s and %s",
                     op == '+'   ? "+"
                     : op == '-' ? "-"
                     : op == '*' ? "*"
                     : op == '/' ? "/"
                     : op == '%' ? "%"
                                 : "// or **",
                     jvalue_type_name(a), jvalue_type_name(b));
}
