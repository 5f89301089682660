/* Operations on marked texts that filters and methods share. */
#include "stages/base/utf8.h"
#include "stages/model/jinja_eval.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { TEXT_MAX = 16 << 20 };

/* how: u upper, l lower, c first letter upper and the rest lower, t so for every word. */
int jtext_case(struct jrun *r, struct mtext s, char how, struct mtext *out)
{
    struct marked m;
    marked_init(&m, TEXT_MAX);
    bool first = true; /* of the text or word */
    int rc = jrun_pay(r, s.len / 4);
    for (size_t i = 0, len; rc == 0 && i < s.len; i += len) {
        uint32_t cp;
        int n = utf8_decode(s.s + i, s.len - i, &cp);
        len = (size_t)abs(n);
        if (n < 0) { /* a stray byte stays what it is */
            rc = marked_join(&m, mtext_slice(s, i, i + len), r->e);
            continue;
        }
        bool upper = how == 'u' || (how != 'l' && first);
        utf8proc_int32_t c = (utf8proc_int32_t)cp,
                         changed = upper ? utf8proc_toupper(c) : utf8proc_tolower(c);
        utf8proc_category_t kind = utf8proc_category(c);
        bool letter = kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
        first = how == 't' ? !letter : false;
        char bytes[4];
        int size = utf8_encode((uint32_t)changed, bytes);
        rc = marked_add(&m, bytes, (size_t)size, s.marks ? s.marks[i] : MARK_TEMPLATE, r->e);
    }
    if (rc == 0)
        rc = jtext_keep(r, &m, out);
    marked_release(&m);
    return rc;
}

int jtext_replace(struct jrun *r, struct mtext s, struct mtext from, struct mtext to,
                  int64_t most, struct mtext *out)
{
    if (from.len == 0)
        return jrun_fail(r, ERR_UNSUPPORTED, "the replacement of an empty string");
    struct marked m;
    marked_init(&m, TEXT_MAX);
    int rc = jrun_pay(r, s.len / 16);
    while (rc == 0) {
        size_t at = most == 0 ? s.len : mtext_find(s, from);
        rc = marked_join(&m, mtext_slice(s, 0, at), r->e);
        if (rc < 0 || at == s.len)
            break;
        rc = marked_join(&m, to, r->e);
        if (rc == 0)
            rc = jrun_pay(r, 1 + to.len / 256);
        s = mtext_slice(s, at + from.len, s.len);
        most -= most > 0;
    }
    if (rc == 0)
        rc = jtext_keep(r, &m, out);
    marked_release(&m);
    return rc;
}

/* The next piece of *s and whether there is one after it. */
static struct mtext next_piece(struct mtext *s, struct mtext sep, bool whole, bool *more)
{
    size_t at = 0;
    if (whole) {
        at = s->len;
    } else if (sep.len) {
        at = mtext_find(*s, sep);
    } else {
        uint32_t cp;
        for (int n; at < s->len; at += (size_t)abs(n)) {
            n = utf8_decode(s->s + at, s->len - at, &cp);
            if (n > 0 && is_space_cp(cp))
                break;
        }
    }
    struct mtext piece = mtext_slice(*s, 0, at);
    *more = at < s->len;
    *s = mtext_slice(*s, at < s->len ? at + sep.len : at, s->len);
    if (sep.len == 0) {
        *s = mtext_lstrip(*s);
        *more = s->len > 0;
    }
    return piece;
}

int jtext_split(struct jrun *r, struct mtext s, struct mtext sep, int64_t most,
                struct jvalue *out)
{
    if (sep.len == 0)
        s = mtext_lstrip(s);
    struct mtext rest = s;
    bool more = sep.len > 0 || s.len > 0;
    size_t n = 0;
    for (int64_t left = most; more; n++)
        next_piece(&rest, sep, left-- == 0, &more);
    int rc = jrun_pay(r, n + s.len / 16);
    if (rc == 0)
        rc = jlist_new(r, n, out);
    rest = s;
    for (size_t i = 0; rc == 0 && i < n; i++)
        out->list->items[i] = jvalue_string(next_piece(&rest, sep, most-- == 0, &more));
    if (rc == 0 && n &&
        sep.len == 0) /* the last of a limited split keeps its inside, not its end */
        out->list->items[n - 1].s = mtext_rstrip(out->list->items[n - 1].s);
    return rc;
}

static bool in_set(const struct mtext *set, const char *s, size_t n)
{
    return mtext_find(*set, (struct mtext){s, NULL, n}) < set->len;
}

struct mtext jtext_strip(struct mtext s, const struct mtext *set, bool left, bool right)
{
    if (!set) {
        s = left ? mtext_lstrip(s) : s;
        return right ? mtext_rstrip(s) : s;
    }
    uint32_t cp;
    while (left && s.len) {
        size_t n = (size_t)abs(utf8_decode(s.s, s.len, &cp));
        if (!in_set(set, s.s, n))
            break;
        s = mtext_slice(s, n, s.len);
    }
    while (right && s.len) {
        size_t at = s.len - 1;
        while (at > 0 && s.len - at < 4 && ((unsigned char)s.s[at] & 0xc0) == 0x80)
            at--;
        if (!in_set(set, s.s + at, s.len - at))
            break;
        s = mtext_slice(s, 0, at);
    }
    return s;
}

int jtext_join_list(struct jrun *r, const struct jlist *list, struct mtext sep,
                    struct mtext *out)
{
    struct marked m;
    marked_init(&m, TEXT_MAX);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < list->n; i++) {
        struct mtext text;
        rc = i > 0 ? marked_join(&m, sep, r->e) : 0;
        if (rc == 0)
            rc = jvalue_text(r, &list->items[i], &text);
        if (rc == 0)
            rc = jrun_pay(r, 1 + (text.len + sep.len) / 64);
        if (rc == 0)
            rc = marked_join(&m, text, r->e);
    }
    if (rc == 0)
        rc = jtext_keep(r, &m, out);
    marked_release(&m);
    return rc;
}
