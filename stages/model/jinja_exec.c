/* Statements. A body returns 0, a negative code, or how it was left. */
#include "stages/base/mem.h"
#include "stages/model/jinja_eval.h"
#include "stages/model/jinja_parse.h"

#include <stdlib.h>
#include <string.h>

enum { LEFT_BREAK = 1, LEFT_CONTINUE = 2 };
enum { TREE_MAX = 64 << 20, VALUES_MAX = 8 << 20, CAPTURE_MAX = 16 << 20 };

struct jinja {
    struct arena arena;
    struct jnode *body;
};

static int exec_body(struct jrun *r, const struct jnode *body);

/* ---- scopes ---- */

static int new_scope(struct jrun *r, struct jscope *outer, struct jscope **out)
{
    int rc = jrun_alloc(r, sizeof(**out), out);
    if (rc == 0)
        (*out)->outer = outer;
    return rc;
}

static int assign(struct jrun *r, const struct jnode *target, const struct jvalue *v)
{
    if (target->kind == JN_NAME)
        return jmap_set(r, &r->scope->names, target->text, *v);
    if (target->kind == JN_ATTR) {
        struct jvalue box;
        int rc = jeval(r, target->a, &box);
        if (rc == 0 && (box.type != J_MAP || !box.map->mutable))
            return jrun_fail(r, ERR_FORMAT,
                             "an attribute of %s is set, which only a namespace has",
                             jvalue_type_name(&box));
        return rc < 0 ? rc : jmap_set(r, box.map, target->text, *v);
    }
    if (target->kind != JN_LIST)
        return jrun_fail(r, ERR_UNSUPPORTED, "a call or item is set");
    struct jlist items;
    int rc = jvalue_items(r, v, &items);
    size_t i = 0;
    const struct jnode *name = target->a;
    for (; rc == 0 && name && i < items.n; name = name->next)
        rc = assign(r, name, &items.items[i++]);
    if (rc == 0 && (name || i < items.n))
        return jrun_fail(r, ERR_FORMAT, "%zu values for another number of names", items.n);
    return rc;
}

/* ---- text ---- */

static int print(struct jrun *r, struct mtext text)
{
    int rc = jrun_pay(r, 1 + text.len / 64);
    return rc < 0 ? rc : marked_join(r->out, text, r->e);
}

/* Run a body and keep what it writes. */
static int capture(struct jrun *r, const struct jnode *body, struct jvalue *out)
{
    struct marked text, *outer = r->out;
    marked_init(&text, CAPTURE_MAX);
    r->out = &text;
    int rc = exec_body(r, body);
    r->out = outer;
    out->type = J_STRING;
    if (rc >= 0)
        rc = jtext_keep(r, &text, &out->s);
    marked_release(&text);
    return rc;
}

int jcall_macro(struct jrun *r, const struct jmacro *m, const struct jargs *args,
                struct jvalue *out)
{
    struct jscope *scope, *outer = r->scope;
    int rc = new_scope(r, m->scope, &scope), i = 0;
    if (rc < 0)
        return rc;
    r->scope = scope;
    for (const struct jnode *p = m->node->a; rc == 0 && p; p = p->next, i++) {
        struct jvalue v = jvalue_undefined(p->text);
        bool given = i < args->n;
        if (given)
            v = args->pos[i];
        for (int k = 0; k < args->n_named; k++) {
            if (jtext_equal(args->names[k], p->text)) {
                v = args->named[k];
                given = true;
            }
        }
        if (!given && p->a)
            rc = jeval(r, p->a, &v);
        if (rc == 0)
            rc = jmap_set(r, &scope->names, p->text, v);
    }
    if (rc == 0 && args->n > i)
        rc = jrun_fail(r, ERR_FORMAT, "the macro \"%.*s\" takes %d arguments",
                       jtext_shown(m->node->text), m->node->text.s, i);
    if (rc == 0)
        rc = capture(r, m->node->b, out);
    r->scope = outer;
    return rc;
}

/* ---- statements ---- */

static int exec_if(struct jrun *r, const struct jnode *n)
{
    for (;;) {
        struct jvalue v;
        int rc = jeval(r, n->a, &v);
        if (rc < 0)
            return rc;
        if (jvalue_true(&v))
            return exec_body(r, n->b);
        if (!n->c || n->c->kind != JN_IF || n->c->next)
            return exec_body(r, n->c);
        n = n->c; /* elif, or an if alone in an else: the same */
    }
}

/* The items for which the condition of a loop holds. */
static int filter_items(struct jrun *r, const struct jnode *n, struct jlist *items)
{
    struct jvalue kept;
    struct jscope *outer = r->scope;
    int rc = jlist_new(r, items->n, &kept);
    size_t used = 0;
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct jvalue v;
        rc = new_scope(r, outer, &r->scope);
        if (rc == 0)
            rc = assign(r, n->a, &items->items[i]);
        if (rc == 0)
            rc = jeval(r, n->filter, &v);
        if (rc == 0 && jvalue_true(&v))
            kept.list->items[used++] = items->items[i];
    }
    r->scope = outer;
    if (rc == 0)
        *items = (struct jlist){kept.list->items, used};
    return rc;
}

/* The variable "loop" of round i. */
static int loop_value(struct jrun *r, const struct jlist *items, size_t i, struct jvalue *out)
{
    int64_t n = (int64_t)items->n, at = (int64_t)i;
    int rc = jmap_new(r, 9, out);
    if (rc < 0)
        return rc;
    const struct jentry entries[9] = {
        {mtext_of("index0"), jvalue_int(at)},
        {mtext_of("index"), jvalue_int(at + 1)},
        {mtext_of("first"), jvalue_bool(at == 0)},
        {mtext_of("last"), jvalue_bool(at + 1 == n)},
        {mtext_of("length"), jvalue_int(n)},
        {mtext_of("revindex"), jvalue_int(n - at)},
        {mtext_of("revindex0"), jvalue_int(n - at - 1)},
        {mtext_of("previtem"),
         i > 0 ? items->items[i - 1] : jvalue_undefined(mtext_of("loop.previtem"))},
        {mtext_of("nextitem"),
         i + 1 < items->n ? items->items[i + 1] : jvalue_undefined(mtext_of("loop.nextitem"))}};
    memcpy(out->map->items, entries, sizeof(entries));
    out->map->n = ARRAY_LEN(entries);
    return 0;
}

static int exec_for(struct jrun *r, const struct jnode *n)
{
    struct jvalue box, loop;
    struct jlist items;
    struct jscope *outer = r->scope;
    int rc = jeval(r, n->b, &box);
    if (rc == 0)
        rc = jvalue_items(r, &box, &items);
    if (rc == 0 && n->filter)
        rc = filter_items(r, n, &items);
    if (rc < 0)
        return rc;
    if (items.n == 0)
        return exec_body(r, n->d);
    for (size_t i = 0; rc >= 0 && rc != LEFT_BREAK && i < items.n; i++) {
        rc = new_scope(r, outer, &r->scope);
        if (rc == 0)
            rc = loop_value(r, &items, i, &loop);
        if (rc == 0)
            rc = jmap_set(r, &r->scope->names, mtext_of("loop"), loop);
        if (rc == 0)
            rc = assign(r, n->a, &items.items[i]);
        if (rc == 0)
            rc = exec_body(r, n->c);
        r->scope = outer;
    }
    return rc < 0 ? rc : 0;
}

static int exec_macro(struct jrun *r, const struct jnode *n)
{
    struct jvalue v = {.type = J_MACRO};
    int rc = jrun_alloc(r, sizeof(*v.macro), &v.macro);
    if (rc < 0)
        return rc;
    *v.macro = (struct jmacro){n, r->scope};
    return jmap_set(r, &r->scope->names, n->text, v);
}

static int exec_statement(struct jrun *r, const struct jnode *n)
{
    struct jvalue v;
    struct mtext text;
    int rc;
    r->line = n->line;
    switch (n->kind) {
    case JN_DATA:
        return print(r, n->text);
    case JN_PRINT:
        rc = jeval(r, n->a, &v);
        if (rc == 0)
            rc = jvalue_text(r, &v, &text);
        return rc < 0 ? rc : print(r, text);
    case JN_IF:
        return exec_if(r, n);
    case JN_FOR:
        return exec_for(r, n);
    case JN_SET:
        rc = n->b ? jeval(r, n->b, &v) : capture(r, n->c, &v);
        return rc < 0 ? rc : assign(r, n->a, &v);
    case JN_MACRO:
        return exec_macro(r, n);
    case JN_BLOCK:
        return exec_body(r, n->b);
    case JN_BREAK:
        return LEFT_BREAK;
    case JN_CONTINUE:
        return LEFT_CONTINUE;
    default:
        return jrun_fail(r, ERR_BUG, "an expression as a statement");
    }
}

static int exec_body(struct jrun *r, const struct jnode *body)
{
    int rc = jrun_enter(r);
    for (; rc == 0 && body; body = body->next) {
        rc = jrun_pay(r, 1);
        if (rc == 0)
            rc = exec_statement(r, body);
    }
    r->depth--;
    return rc;
}

/* ---- templates ---- */

int jinja_open(struct jinja **out, const char *text, size_t len, struct err *e)
{
    if (len > JINJA_TEMPLATE_MAX)
        return err_set(e, REACH_JOB, ERR_LIMIT, "a chat template of %zu bytes; the limit is %d",
                       len, JINJA_TEMPLATE_MAX);
    struct jinja *j = mem_need(sizeof(*j));
    arena_init(&j->arena, TREE_MAX);
    char *s = jlex_normalise(&j->arena, text, &len);
    int rc = s ? jparse_template(s, len, &j->arena, &j->body, e)
               : err_set(e, REACH_JOB, ERR_NOMEM, "no memory for the chat template");
    if (rc < 0) {
        jinja_free(j);
        return rc;
    }
    *out = j;
    return 0;
}

void jinja_free(struct jinja *j)
{
    if (!j)
        return;
    arena_release(&j->arena);
    free(j);
}

static int set_messages(struct jrun *r, const struct jinja_input *in)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    struct jvalue list;
    int rc = jlist_new(r, (size_t)in->n, &list);
    for (int i = 0; rc == 0 && i < in->n; i++) {
        struct jvalue *m = &list.list->items[i];
        rc = jmap_new(r, 2, m);
        if (rc == 0)
            rc = jmap_set(r, m->map, mtext_of("role"),
                          jvalue_string(mtext_of(roles[in->msgs[i].role])));
        if (rc == 0)
            rc = jmap_set(r, m->map, mtext_of("content"), jvalue_string(in->msgs[i].text));
    }
    return rc < 0 ? rc : jmap_set(r, &r->scope->names, mtext_of("messages"), list);
}

static int set_date(struct jrun *r, struct jmap *names)
{
    struct jargs args = {.n = 1, .pos = {jvalue_string(mtext_of("%d %b %Y"))}};
    struct jvalue date;
    int rc = jcall_function(r, mtext_of("strftime_now"), &args, &date);
    return rc < 0 ? rc : jmap_set(r, names, mtext_of("date_string"), date);
}

/* What every template can read, with the values that Hugging Face's tokenizers give. */
static int set_names(struct jrun *r, const struct jinja_input *in)
{
    struct jmap *names = &r->scope->names;
    int rc = set_messages(r, in);
    if (rc == 0)
        rc = jmap_set(r, names, mtext_of("add_generation_prompt"), jvalue_bool(true));
    if (rc == 0)
        rc = jmap_set(r, names, mtext_of("bos_token"), jvalue_string(mtext_of(in->bos)));
    if (rc == 0)
        rc = jmap_set(r, names, mtext_of("eos_token"), jvalue_string(mtext_of(in->eos)));
    if (rc == 0)
        rc = jmap_set(r, names, mtext_of("tools"), jvalue_none());
    if (rc == 0)
        rc = jmap_set(r, names, mtext_of("documents"), jvalue_none());
    if (rc == 0 && in->date) /* Llama 3.1 and later read this one first */
        rc = set_date(r, names);
    return rc;
}

int jinja_render(const struct jinja *j, const struct jinja_input *in, struct marked *out,
                 struct err *e)
{
    struct jrun r = {.in = in, .out = out, .e = e, .steps = JINJA_STEPS_MAX};
    size_t input = 0;
    for (int i = 0; i < in->n; i++)
        input += in->msgs[i].text.len;
    r.steps += (int64_t)(input / 16);
    arena_init(&r.arena, VALUES_MAX + 32 * input);
    int rc = new_scope(&r, NULL, &r.scope);
    if (rc == 0)
        rc = set_names(&r, in);
    if (rc == 0) /* what a template sets may hide these */
        rc = new_scope(&r, r.scope, &r.scope);
    if (rc == 0)
        rc = exec_body(&r, j->body);
    arena_release(&r.arena);
    return rc < 0 ? rc : 0;
}
