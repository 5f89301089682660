/* stages/model/jinja_value.h - values of a template and what runs it: memory, steps, errors.
 *
 * Rules:  1. Values live in the arena of one rendering; nothing is freed before its end.
 *         2. Whatever costs more than constant time is paid for with jrun_pay().
 *         3. Lists and maps are immutable once made, but for namespaces.
 */
#ifndef QUIRE_MODEL_JINJA_VALUE_H
#define QUIRE_MODEL_JINJA_VALUE_H

#include "stages/base/arena.h"
#include "stages/model/jinja.h"
#include "stages/model/jinja_ast.h"

enum jtype {
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STRING,
    J_LIST,
    J_MAP,
    J_FUNCTION,
    J_MACRO
};

struct jlist;
struct jmap;
struct jmacro;

struct jvalue {
    enum jtype type;
    union {
        bool b;
        int64_t i;
        double f;
        struct mtext s; /* J_STRING; J_UNDEFINED and J_FUNCTION: its name */
        struct jlist *list;
        struct jmap *map;
        struct jmacro *macro;
    };
};

struct jlist {
    struct jvalue *items;
    size_t n;
};

struct jentry {
    struct mtext key;
    struct jvalue value;
};

struct jmap {
    struct jentry *items;
    size_t n, cap;
    bool mutable; /* a namespace */
};

struct jscope;

/* One rendering. */
struct jrun {
    struct arena arena;
    int64_t steps; /* left */
    int depth, line;
    const struct jinja_input *in;
    struct jscope *scope;
    struct marked *out; /* where text goes now */
    struct err *e;
};

/* Each returns 0 or a negative code with r->e set, the template's line in front. */
int jrun_pay(struct jrun *r, size_t steps) MUST_CHECK;
int jrun_enter(struct jrun *r) MUST_CHECK; /* r->depth-- leaves */
int jrun_fail(struct jrun *r, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* n zeroed bytes into *out. */
int jrun_alloc(struct jrun *r, size_t n, void *out) MUST_CHECK;

/* For "%.*s" in messages: at most 60 bytes. */
int jtext_shown(struct mtext t);

static inline struct jvalue jvalue_none(void)
{
    return (struct jvalue){.type = J_NONE};
}

static inline struct jvalue jvalue_bool(bool b)
{
    return (struct jvalue){J_BOOL, .b = b};
}

static inline struct jvalue jvalue_int(int64_t i)
{
    return (struct jvalue){J_INT, .i = i};
}

static inline struct jvalue jvalue_string(struct mtext s)
{
    return (struct jvalue){J_STRING, .s = s};
}

struct jvalue jvalue_undefined(struct mtext name);

/* A list of n undefined items; a map with room for n entries. */
int jlist_new(struct jrun *r, size_t n, struct jvalue *out) MUST_CHECK;
int jmap_new(struct jrun *r, size_t room, struct jvalue *out) MUST_CHECK;
int jmap_set(struct jrun *r, struct jmap *m, struct mtext key, struct jvalue v) MUST_CHECK;
/* The entry of a key, or NULL. */
struct jvalue *jmap_find(const struct jmap *m, struct mtext key);

bool jtext_equal(struct mtext a, struct mtext b);
/* a then b, in the arena. */
int jtext_join(struct jrun *r, struct mtext a, struct mtext b, struct mtext *out) MUST_CHECK;
/* The contents of m, in the arena. */
int jtext_keep(struct jrun *r, const struct marked *m, struct mtext *out) MUST_CHECK;

bool jvalue_true(const struct jvalue *v);
bool jvalue_is_number(const struct jvalue *v); /* bool, int, float */
double jvalue_number(const struct jvalue *v);
const char *jvalue_type_name(const struct jvalue *v);
int jvalue_equal(struct jrun *r, const struct jvalue *a, const struct jvalue *b,
                 bool *out) MUST_CHECK;
/* -1, 0, 1 for numbers and strings; fails for others. */
int jvalue_compare(struct jrun *r, const struct jvalue *a, const struct jvalue *b,
                   int *out) MUST_CHECK;
int jvalue_contains(struct jrun *r, const struct jvalue *box, const struct jvalue *item,
                    bool *out) MUST_CHECK;
/* What {{ v }} prints, as Python's str(). */
int jvalue_text(struct jrun *r, const struct jvalue *v, struct mtext *out) MUST_CHECK;
/* What a loop walks over: a list itself, the keys of a map, the characters of a string. */
int jvalue_items(struct jrun *r, const struct jvalue *v, struct jlist *out) MUST_CHECK;
/* Number of items or characters. */
int jvalue_length(struct jrun *r, const struct jvalue *v, int64_t *out) MUST_CHECK;

/* As json.dumps(v, ensure_ascii=False, indent=indent); indent < 0: on one line. (jinja_json.c) */
int jvalue_json(struct jrun *r, const struct jvalue *v, int indent,
                struct mtext *out) MUST_CHECK;
/* Python's repr() of a float. */
void jfloat_text(double f, char out[32]);

#endif
