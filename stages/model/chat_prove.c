#include "stages/model/chat_prove.h"

#include "stages/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { RENDER_MAX = 1 << 20, USER = 0, SYSTEM = 1, LONG = 2, CASES = 3 };
enum { TRIM_TURNS = 1, TRIM_SYSTEM = 2, TRIM_ANSWERS = 4, TRIM_ALL = 8 };

/* Marks tell the texts apart, so that a rendering with two of them swapped is not the same. */
static const char *const texts[] = {" \n Be brief; cite pages.\n ", "\n What is in it?  \n",
                                    "\t Two things. \n", " \n Which ones? "};

/* What the template writes for each conversation. */
struct observed {
    struct marked out[CASES];
    struct mtext text[CASES]; /* without BOS */
    uint8_t marks[4][32];     /* of the texts above */
    bool bos, refuses_system;
};

static struct mtext sample(struct observed *o, int i)
{
    size_t n = strlen(texts[i]);
    return (struct mtext){texts[i], memset(o->marks[i], i + 1, n), n};
}

static int conversation(struct observed *o, int which, struct chat_message msgs[3])
{
    int n = 0;
    if (which == SYSTEM)
        msgs[n++] = (struct chat_message){CHAT_SYSTEM, sample(o, 0)};
    msgs[n++] = (struct chat_message){CHAT_USER, sample(o, 1)};
    if (which == LONG) {
        msgs[n++] = (struct chat_message){CHAT_ASSISTANT, sample(o, 2)};
        msgs[n++] = (struct chat_message){CHAT_USER, sample(o, 3)};
    }
    return n;
}

static bool same(struct mtext a, struct mtext b)
{
    if (a.len != b.len || (a.len && memcmp(a.s, b.s, a.len) != 0))
        return false;
    for (size_t i = 0; i < a.len; i++)
        if ((a.marks ? a.marks[i] : 0) != (b.marks ? b.marks[i] : 0))
            return false;
    return true;
}

bool chat_strip_bos(struct mtext *t, const char *bos)
{
    size_t n = strlen(bos);
    bool had = n > 0 && mtext_starts(*t, bos) && (!t->marks || t->marks[0] == MARK_TEMPLATE);
    if (had)
        *t = mtext_slice(*t, n, t->len);
    return had;
}

static int observe(struct observed *o, const struct jinja *j, const char *bos, const char *eos,
                   const struct chat_date *date, struct err *e)
{
    for (int i = 0; i < CASES; i++) {
        struct chat_message msgs[3];
        struct jinja_input in = {msgs, conversation(o, i, msgs), bos, eos, date};
        struct err inner = {0};
        marked_init(&o->out[i], RENDER_MAX);
        int rc = jinja_render(j, &in, &o->out[i], &inner);
        if (rc == -ERR_FORMAT && i == SYSTEM) {
            o->refuses_system = true;
            continue;
        }
        if (rc < 0) {
            *e = inner;
            return rc;
        }
        o->text[i] = marked_view(&o->out[i]);
    }
    if (!o->refuses_system && same(o->text[USER], o->text[SYSTEM]))
        o->refuses_system = true; /* it drops what it is given */
    return 0;
}

/* Take BOS off all renderings; false when one begins without it. */
static bool strip_all(struct observed *o, const char *bos)
{
    o->bos = true;
    for (int i = 0; o->bos && i < CASES; i++)
        o->bos = (i == SYSTEM && o->refuses_system) || chat_strip_bos(&o->text[i], bos);
    return o->bos;
}

static char *copy(struct mtext t)
{
    char *s = mem_need(t.len + 1);
    memcpy(s, t.s, t.len);
    return s;
}

/* Read off what stands in front of the system text, and what stands there when none is given. plain: the family's
 * rendering of the user turn alone. False when the template does not write a system turn as the family does. */
static bool read_system(const struct observed *o, const struct chat_format *f,
                        struct mtext plain, struct chat_quirks *q)
{
    struct mtext given = o->text[SYSTEM], none = o->text[USER];
    size_t open = strlen(f->system_open), close = strlen(f->system_close);
    if (!mtext_starts(given, f->system_open))
        return false;
    size_t before = open;
    while (before < given.len && !(given.marks && given.marks[before]))
        before++;
    if (before == given.len)
        return false;
    if (before > open)
        q->system_before = copy(mtext_slice(given, open, before));
    if (same(none, plain))
        return true;
    if (none.len < before + close + plain.len || memcmp(none.s, given.s, before) != 0)
        return false;
    size_t end = none.len - plain.len - close;
    if (end > before)
        q->system_default = copy(mtext_slice(none, before, end));
    return true;
}

/* Do the family and these quirks write what the template writes? */
static int explains(struct observed *o, const struct chat_format *f,
                    const struct chat_quirks *q, const char *eos, bool *yes, struct err *e)
{
    *yes = true;
    for (int i = 0; *yes && i < CASES; i++) {
        if (i == SYSTEM && o->refuses_system)
            continue;
        struct chat_message msgs[3];
        struct marked out;
        marked_init(&out, RENDER_MAX);
        int n = conversation(o, i, msgs), rc = chat_format_render(f, q, eos, msgs, n, &out, e);
        *yes = rc == 0 && same(marked_view(&out), o->text[i]);
        marked_release(&out);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* One family with one choice of trims. */
static int try_format(struct observed *o, const struct chat_format *f, int trims,
                      const char *eos, struct chat_quirks *q, bool *yes, struct err *e)
{
    *q = (struct chat_quirks){.bos = o->bos,
                              .trim_turns = trims & TRIM_TURNS,
                              .trim_system = trims & TRIM_SYSTEM,
                              .trim_answers = trims & TRIM_ANSWERS,
                              .no_system = !f->system_open || o->refuses_system};
    *yes = false;
    struct chat_message user = {CHAT_USER, sample(o, 1)};
    struct marked plain;
    marked_init(&plain, RENDER_MAX);
    int rc = chat_format_render(f, q, eos, &user, 1, &plain, e);
    bool read = rc == 0 && (q->no_system || read_system(o, f, marked_view(&plain), q));
    marked_release(&plain);
    if (read)
        rc = explains(o, f, q, eos, yes, e);
    if (!*yes)
        chat_quirks_release(q);
    return rc;
}

static int try_formats(struct observed *o, struct mtext template, const char *eos,
                       const struct chat_format **f, struct chat_quirks *q, bool *found,
                       struct err *e)
{
    int rc = 0;
    *found = false;
    for (size_t i = 0; rc == 0 && !*found && i < n_chat_formats; i++) {
        const struct chat_format *row = &chat_formats[i];
        if (mtext_find(template, mtext_of(row->sign)) == template.len)
            continue;
        *f = row;
        for (int trims = 0; rc == 0 && !*found && trims < TRIM_ALL; trims++)
            rc = try_format(o, row, trims, eos, q, found, e);
    }
    return rc;
}

int chat_prove(const struct jinja *j, const char *text, size_t len, const char *bos,
               const char *eos, const struct chat_date *date, const struct chat_format **f,
               struct chat_quirks *q, struct err *e)
{
    struct observed o = {0};
    struct mtext template = {text, NULL, len};
    bool found = false;
    int rc = observe(&o, j, bos, eos, date, e);
    /* First as it is: BOS may be what a family begins with anyway, as in SmolLM2. */
    if (rc == 0)
        rc = try_formats(&o, template, eos, f, q, &found, e);
    if (rc == 0 && !found && strip_all(&o, bos))
        rc = try_formats(&o, template, eos, f, q, &found, e);
    for (int i = 0; i < CASES; i++)
        marked_release(&o.out[i]);
    return rc < 0 ? rc : !found;
}
