/* Values from text. Numbers are scanned as decimal text first, so that "0x10", "nan" and a locale's
 * comma never get to strtod(). */
#include "stages/base/opt.h"

#include "stages/base/file.h"
#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SHOWN_BYTES = 60, ENV_NAME = 64, STRING_CAP = 4 << 20 };

struct unit {
    const char *name;
    double factor;
};
static const struct unit byte_units[] = {{"", 1},         {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                         {"GiB", 0x1p30}, {"TiB", 0x1p40}, {NULL, 0}};
static const struct unit time_units[] = {
    {"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {NULL, 0}};

/* What people write instead; compared without case. */
struct other_unit {
    const char *wrong, *right;
};
static const struct other_unit other_bytes[] = {
    {"b", ""},      {"bytes", ""}, {"k", "KiB"},   {"kb", "KiB"},  {"kib", "KiB"},
    {"m", "MiB"},   {"mb", "MiB"}, {"mib", "MiB"}, {"g", "GiB"},   {"gb", "GiB"},
    {"gib", "GiB"}, {"t", "TiB"},  {"tb", "TiB"},  {"tib", "TiB"}, {NULL, NULL},
};
static const struct other_unit other_times[] = {
    {"", "s"},        {"msec", "ms"},   {"millis", "ms"}, {"sec", "s"},  {"secs", "s"},
    {"second", "s"},  {"seconds", "s"}, {"min", "m"},     {"mins", "m"}, {"minute", "m"},
    {"minutes", "m"}, {"hr", "h"},      {"hrs", "h"},     {"hour", "h"}, {"hours", "h"},
    {"s", "s"},       {"m", "m"},       {"h", "h"},       {"ms", "ms"},  {NULL, NULL},
};

/* A value as an error message shows it: short, valid UTF-8, on one line. */
struct shown {
    char text[SHOWN_BYTES + 4];
};

static struct shown show(const char *text)
{
    struct shown s;
    size_t n = strlen(text), valid = utf8_valid_prefix(text, n);
    size_t cut = valid <= SHOWN_BYTES ? valid : utf8_floor(text, valid, SHOWN_BYTES);
    snprintf(s.text, sizeof(s.text), "%.*s%s", (int)cut, text, cut < n ? "..." : "");
    for (char *p = s.text; *p; p++)
        if (iscntrl((unsigned char)*p))
            *p = ' ';
    return s;
}

#define BAD(e, ...) err_set(e, REACH_JOB, ERR_CONFIG, __VA_ARGS__)

static void *field(const struct opt *o, void *config)
{
    return (char *)config + o->offset;
}

/* ---- numbers ---- */

/* Length of the decimal number at the start of s: [+-] digits [. digits] [e [+-] digits]; 0: none. */
static size_t number_length(const char *s)
{
    const char *p = s + (*s == '+' || *s == '-');
    const char *digits = p;
    while (isdigit((unsigned char)*p))
        p++;
    if (p == digits)
        return 0;
    if (*p == '.' && isdigit((unsigned char)p[1]))
        for (p++; isdigit((unsigned char)*p);)
            p++;
    if (*p == 'e') {
        const char *q = p + 1 + (p[1] == '+' || p[1] == '-');
        if (isdigit((unsigned char)*q)) {
            while (isdigit((unsigned char)*q))
                q++;
            p = q;
        }
    }
    return (size_t)(p - s);
}

/* The number and the unit behind it; white space may stand between them. */
static bool split_number(const char *text, double *value, const char **unit, size_t *digits)
{
    *digits = number_length(text);
    if (*digits == 0)
        return false;
    *value = strtod(text, NULL);
    *unit = text + *digits;
    while (**unit == ' ')
        (*unit)++;
    return true;
}

static int check_range(const struct opt *o, double v, const char *text, struct err *e)
{
    bool bounded = o->min < o->max;
    if (!isnan(v) && (!bounded || (v >= o->min && v <= o->max)))
        return 0;
    char range[128];
    opt_expects(o, range, sizeof(range));
    return BAD(e, "%s is too %s: %s", show(text).text, v < o->min ? "small" : "large", range);
}

static int parse_whole(const struct opt *o, const char *text, int *out, struct err *e)
{
    const char *unit;
    size_t digits;
    double v;
    if (!split_number(text, &v, &unit, &digits) || *unit || v != floor(v)) {
        char range[128];
        opt_expects(o, range, sizeof(range));
        return BAD(e, "\"%s\" is not a whole number: %s", show(text).text, range);
    }
    if (check_range(o, v, text, e))
        return -(int)e->code;
    if (v < -2147483648.0 || v > 2147483647.0)
        return BAD(e, "%s is too %s", show(text).text, v < 0 ? "small" : "large");
    *out = (int)v;
    return 0;
}

static int parse_float(const struct opt *o, const char *text, double *out, struct err *e)
{
    const char *unit;
    size_t digits;
    double v;
    if (!split_number(text, &v, &unit, &digits) || *unit || isinf(v)) {
        char range[128];
        opt_expects(o, range, sizeof(range));
        return BAD(e, "\"%s\" is not a number: %s", show(text).text, range);
    }
    if (check_range(o, v, text, e))
        return -(int)e->code;
    *out = v;
    return 0;
}

/* A number with one of units. A unit that only looks like one is named with the spelling that works. */
static int parse_unit(const char *text, const struct unit *units,
                      const struct other_unit *others, const char *what, double *out,
                      struct err *e)
{
    const char *unit;
    size_t digits;
    double v;
    if (!split_number(text, &v, &unit, &digits))
        return BAD(e, "\"%s\" is not %s", show(text).text, what);
    for (const struct unit *u = units; u->name; u++)
        if (strcmp(unit, u->name) == 0) {
            /* 500ms must be the same double as 0.5s: divide, for 0.001 is not exact. */
            *out = u->factor < 1 ? v / round(1 / u->factor) : v * u->factor;
            return 0;
        }
    for (const struct other_unit *o = others; o->wrong; o++)
        if (strcasecmp(unit, o->wrong) == 0)
            return BAD(e, "\"%s\": write %.*s%s", show(text).text, (int)digits, text, o->right);
    return BAD(e, "\"%s\" is not %s", show(text).text, what);
}

static int parse_bytes(const struct opt *o, const char *text, uint64_t *out, struct err *e)
{
    double v;
    int rc = parse_unit(
        text, byte_units, other_bytes,
        "a size: write bytes as a number, or with KiB, MiB, GiB, TiB, such as 64MiB", &v, e);
    if (rc == 0)
        rc = check_range(o, v, text, e);
    if (rc)
        return rc;
    if (v < 0 || v > 0x1p53 || v != floor(v))
        return BAD(e, "\"%s\" is not a whole number of bytes", show(text).text);
    *out = (uint64_t)v;
    return 0;
}

static int parse_seconds(const struct opt *o, const char *text, double *out, struct err *e)
{
    double v;
    int rc = parse_unit(text, time_units, other_times,
                        "a time: write it with ms, s, m or h, such as 30s", &v, e);
    if (rc == 0)
        rc = check_range(o, v, text, e);
    if (rc)
        return rc;
    if (v < 0 || isinf(v))
        return BAD(e, "\"%s\" is not a length of time", show(text).text);
    *out = v;
    return 0;
}

/* ---- words ---- */

static int parse_bool(const char *text, bool *out, struct err *e)
{
    bool yes = strcmp(text, "yes") == 0 || strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "no") != 0 && strcmp(text, "false") != 0)
        return BAD(e, "\"%s\" is not yes or no", show(text).text);
    *out = yes;
    return 0;
}

static int parse_enum(const struct opt *o, const char *text, int *out, struct err *e)
{
    struct opt_guess guess = {.wanted = text};
    for (int i = 0; o->names[i]; i++) {
        if (strcmp(o->names[i], text) == 0) {
            *out = i;
            return 0;
        }
        opt_guess_add(&guess, o->names[i]);
    }
    if (guess.best)
        return BAD(e, "unknown value \"%s\": did you mean \"%s\"?", show(text).text,
                   guess.best);
    char names[256];
    opt_expects(o, names, sizeof(names));
    return BAD(e, "unknown value \"%s\": %s", show(text).text, names);
}

/* ---- texts ---- */

/* Copy text, with ${NAME} replaced by the environment. */
static int expand(const char *text, struct buf *out, struct err *e)
{
    for (const char *p = text; *p;) {
        int rc;
        if (strncmp(p, "$${", 3) == 0) {
            rc = buf_adds(out, "${", e);
            p += 3;
        } else if (strncmp(p, "${", 2) == 0) {
            size_t n = strcspn(p + 2, "}");
            char name[ENV_NAME];
            if (p[2 + n] != '}' || n == 0 || n >= sizeof(name))
                return BAD(e, "\"%s\": ${ needs a name and a }; a plain ${ is written $${",
                           show(p).text);
            memcpy(name, p + 2, n);
            name[n] = '\0';
            const char *value = getenv(name);
            if (!value)
                return BAD(e, "${%s} is not set in the environment", name);
            rc = buf_adds(out, value, e);
            p += n + 3;
        } else {
            rc = buf_addc(out, *p++, e);
        }
        if (rc)
            return rc;
    }
    return 0;
}

/* base/path without "./" and "../" at the seam. The folder of a job file is given without symbolic links, so that
 * its parent is what is in front of its last slash. */
static char *resolve(const char *base, const char *path)
{
    char *folder = mem_strdup(base);
    for (;;) {
        size_t up = strncmp(path, "..", 2) == 0 && (path[2] == '/' || path[2] == '\0') ? 2 : 0;
        size_t here = path[0] == '.' && (path[1] == '/' || path[1] == '\0') ? 1 : 0;
        if (up + here == 0 || (up && *folder != '/'))
            break;
        if (up) {
            char *parent = file_parent(folder);
            free(folder);
            folder = parent;
        }
        path += up + here;
        path += strspn(path, "/");
    }
    char *whole = *path ? file_join(folder, path) : mem_strdup(folder);
    free(folder);
    return whole;
}

/* The finished string of one text or path; heap, or NULL with e set. */
static char *parse_text(const struct opt *o, const char *text, const char *base, struct err *e)
{
    struct buf b;
    buf_init(&b, STRING_CAP);
    int rc = o->flags & OPT_ENV ? expand(text, &b, e) : buf_adds(&b, text, e);
    if (rc) {
        e->code = ERR_CONFIG; /* a text over the cap is the job file's fault too */
        e->reach = REACH_JOB;
        buf_release(&b);
        return NULL;
    }
    char *s = buf_take(&b);
    if (o->type == OPT_PATH || o->type == OPT_PATHS) {
        if (*s == '\0') {
            BAD(e, "an empty path");
            free(s);
            return NULL;
        }
        char *path = resolve(base, s);
        free(s);
        s = path;
    }
    size_t n = strlen(s);
    if (utf8_valid_prefix(s, n) !=
        n) { /* only the environment or the folder can bring this in */
        BAD(e, "\"%s\" is not valid UTF-8", show(text).text);
        free(s);
        return NULL;
    }
    return s;
}

static int append(struct opt_list *list, char *item, struct err *e)
{
    char **grown = mem_resize(list->items, (list->n + 1) * sizeof(*grown));
    if (!grown) {
        free(item);
        return err_set(e, REACH_JOB, ERR_NOMEM, "no memory for a list of %zu texts",
                       list->n + 1);
    }
    list->items = grown;
    list->items[list->n++] = item;
    return 0;
}

int opt_set(const struct opt *o, void *config, const char *text, const char *base,
            struct err *e)
{
    void *at = field(o, config);
    switch (o->type) {
    case OPT_BOOL:
        return parse_bool(text, at, e);
    case OPT_INT:
    case OPT_TOKENS:
        return parse_whole(o, text, at, e);
    case OPT_BYTES:
        return parse_bytes(o, text, at, e);
    case OPT_SECONDS:
        return parse_seconds(o, text, at, e);
    case OPT_FLOAT:
        return parse_float(o, text, at, e);
    case OPT_ENUM:
        return parse_enum(o, text, at, e);
    case OPT_STRING:
    case OPT_PATH:
    case OPT_STRINGS:
    case OPT_PATHS:
        break;
    }
    char *s = parse_text(o, text, base, e);
    if (!s)
        return -(int)e->code;
    if (o->type == OPT_STRINGS || o->type == OPT_PATHS)
        return append(at, s, e);
    char **old = at;
    free(*old);
    *old = s;
    return 0;
}

int opt_defaults(const struct opt *opts, size_t n, void *config, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (opts[i].def && opt_set(&opts[i], config, opts[i].def, ".", e))
            return err_wrap(e, "default of %s", opts[i].name);
    return 0;
}

void opt_release(const struct opt *opts, size_t n, void *config)
{
    for (size_t i = 0; i < n; i++) {
        void *at = field(&opts[i], config);
        if (opts[i].type == OPT_STRING || opts[i].type == OPT_PATH) {
            char **s = at;
            free(*s);
            *s = NULL;
        } else if (opts[i].type == OPT_STRINGS || opts[i].type == OPT_PATHS) {
            struct opt_list *list = at;
            for (size_t k = 0; k < list->n; k++)
                free(list->items[k]);
            free(list->items);
            *list = (struct opt_list){0};
        }
    }
}

const struct opt *opt_find(const struct opt *opts, size_t n, const char *s)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(opts[i].name, s) == 0)
            return &opts[i];
    return NULL;
}
