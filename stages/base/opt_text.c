/* Values to text, what a row expects, and the nearest name: what messages, `quire show` and the
 * generated documents say about a row. */
#include "stages/base/opt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 64, NUMBER_BYTES = 40 };

void opt_format_bytes(uint64_t v, char *out, size_t cap)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    size_t u = 0;
    while (v && v % 1024 == 0 && u + 1 < ARRAY_LEN(units)) {
        v /= 1024;
        u++;
    }
    snprintf(out, cap, "%llu%s", (unsigned long long)v, units[u]);
}

/* The shortest decimal that reads back as v; 100 rather than 1e+02. */
static void format_float(double v, char *out, size_t cap)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, cap, "%.*g", digits, v);
        bool plain = strchr(out, 'e') == NULL || fabs(v) < 1e-4 || fabs(v) >= 1e15;
        if (plain && strtod(out, NULL) == v)
            return;
    }
}

static void format_seconds(double v, char *out, size_t cap)
{
    double ms = round(v * 1000);
    if (ms > 1e15 || ms / 1000 != v) { /* finer than milliseconds */
        format_float(v, out, cap);
        snprintf(out + strlen(out), cap - strlen(out), "s");
        return;
    }
    long long n = (long long)ms;
    if (n && n % 3600000 == 0)
        snprintf(out, cap, "%lldh", n / 3600000);
    else if (n && n % 60000 == 0)
        snprintf(out, cap, "%lldm", n / 60000);
    else if (n % 1000 == 0)
        snprintf(out, cap, "%llds", n / 1000);
    else
        snprintf(out, cap, "%lldms", n);
}

static void format_number(enum opt_type type, double v, char *out, size_t cap)
{
    if (type == OPT_BYTES)
        opt_format_bytes((uint64_t)v, out, cap);
    else if (type == OPT_SECONDS)
        format_seconds(v, out, cap);
    else
        format_float(v, out, cap);
}

/* A text so that opt_set() gives it back: where the row reads ${NAME}, a plain ${ is $${. */
static int add_text(const struct opt *o, const char *s, struct buf *out, struct err *e)
{
    if (!(o->flags & OPT_ENV))
        return buf_adds(out, s, e);
    int rc = 0;
    for (const char *hit; !rc && (hit = strstr(s, "${")) != NULL; s = hit + 2) {
        rc = buf_add(out, s, (size_t)(hit - s), e);
        if (!rc)
            rc = buf_adds(out, "$${", e);
    }
    return rc ? rc : buf_adds(out, s, e);
}

int opt_text(const struct opt *o, const void *config, size_t i, struct buf *out, struct err *e)
{
    const void *at = (const char *)config + o->offset;
    char number[NUMBER_BYTES];
    if (o->type == OPT_STRINGS || o->type == OPT_PATHS) {
        const struct opt_list *list = at;
        return i < list->n ? add_text(o, list->items[i], out, e) : 1;
    }
    if (i > 0)
        return 1;
    switch (o->type) {
    case OPT_BOOL:
        return buf_adds(out, *(const bool *)at ? "yes" : "no", e);
    case OPT_INT:
    case OPT_TOKENS:
        return buf_addf(out, e, "%d", *(const int *)at);
    case OPT_ENUM:
        return buf_adds(out, o->names[*(const int *)at], e);
    case OPT_BYTES:
        opt_format_bytes(*(const uint64_t *)at, number, sizeof(number));
        return buf_adds(out, number, e);
    case OPT_SECONDS:
        format_seconds(*(const double *)at, number, sizeof(number));
        return buf_adds(out, number, e);
    case OPT_FLOAT:
        format_float(*(const double *)at, number, sizeof(number));
        return buf_adds(out, number, e);
    default:
        break;
    }
    char *const *s = at;
    return *s ? add_text(o, *s, out, e) : 1;
}

static void expect_enum(const struct opt *o, char *out, size_t cap)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; o->names[i] && n < cap; i++) {
        const char *join = i == 0 ? "" : o->names[i + 1] ? ", " : " or ";
        n += (size_t)snprintf(out + n, cap - n, "%s%s", join, o->names[i]);
    }
}

void opt_expects(const struct opt *o, char *out, size_t cap)
{
    static const char *const words[] = {
        [OPT_BOOL] = "yes or no",
        [OPT_INT] = "a whole number",
        [OPT_TOKENS] = "tokens",
        [OPT_BYTES] = "a size",
        [OPT_SECONDS] = "a time",
        [OPT_FLOAT] = "a number",
        [OPT_STRING] = "text",
        [OPT_PATH] = "a path",
        [OPT_STRINGS] = "a text or a list of texts",
        [OPT_PATHS] = "a path or a list of paths",
    };
    if (o->type == OPT_ENUM) {
        expect_enum(o, out, cap);
    } else if (o->min < o->max) {
        char lo[NUMBER_BYTES], hi[NUMBER_BYTES];
        format_number(o->type, o->min, lo, sizeof(lo));
        if (o->type == OPT_INT || o->type == OPT_TOKENS)
            snprintf(hi, sizeof(hi), "%.0f", o->max);
        else
            format_number(o->type, o->max, hi, sizeof(hi));
        snprintf(out, cap, "%s to %s%s", lo, hi, o->type == OPT_TOKENS ? " tokens" : "");
    } else {
        snprintf(out, cap, "%s", words[o->type]);
    }
}

size_t opt_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    if (na > NAME_BYTES || nb > NAME_BYTES)
        return SIZE_MAX;
    /* Rows i-2, i-1 and i of the table of prefix distances (optimal string alignment). */
    size_t table[3][NAME_BYTES + 1];
    for (size_t j = 0; j <= nb; j++)
        table[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *row = table[i % 3], *up = table[(i + 2) % 3], *up2 = table[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < best)
                best = up[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            row[j] = best;
        }
    }
    return table[na % 3][nb];
}

void opt_guess_add(struct opt_guess *g, const char *name)
{
    size_t d = opt_distance(g->wanted, name), n = strlen(g->wanted);
    /* One slip in three letters can still be a slip of the hand; a prefix is an abbreviation. */
    bool near = d <= (n + 2) / 3 || (n >= 3 && strncmp(g->wanted, name, n) == 0);
    if (near && d < strlen(name) && (!g->best || d < g->distance)) {
        g->best = name;
        g->distance = d;
    }
}
