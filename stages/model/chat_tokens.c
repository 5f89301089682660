#include "stages/model/chat_tokens.h"

/* The first run: with the vocabulary's space in front when it turns out to be text. */
static int encode_first(const struct vocab *v, struct mtext t, unsigned flags,
                        struct token_list *out, struct err *e)
{
    int before = out->n;
    int rc = vocab_encode(v, t.s, t.len, flags | VOCAB_NO_PREFIX, out, e);
    if (rc < 0 || !vocab_adds_space(v) || t.s[0] == ' ' ||
        (out->n > before && vocab_is_special(v, out->ids[before])))
        return rc;
    out->n = before;
    return vocab_encode(v, t.s, t.len, flags, out, e);
}

/* True when the last template byte before the border at `at` is tokenised with the user text after it. */
static bool lends_space(struct mtext t, size_t at, int own_mark)
{
    return t.marks && at >= 2 && at < t.len && t.marks[at] != MARK_TEMPLATE &&
           t.marks[at] < own_mark && t.marks[at - 1] == MARK_TEMPLATE &&
           t.marks[at - 2] == MARK_TEMPLATE && t.s[at - 1] == ' ' && t.s[at - 2] != ' ';
}

static size_t run_end(struct mtext t, size_t i)
{
    size_t end = t.marks ? i + 1 : t.len;
    while (end < t.len && t.marks[end] == t.marks[i])
        end++;
    return end;
}

int chat_tokens(const struct vocab *v, struct mtext t, int own_mark, struct token_list *out,
                int *n_shared, struct err *e)
{
    int shared = 0;
    bool reached = false;
    for (size_t i = 0, end; i < t.len; i = end) {
        uint8_t mark = t.marks ? t.marks[i] : MARK_TEMPLATE;
        end = run_end(t, i);
        struct mtext run = mtext_slice(t, i - lends_space(t, i, own_mark),
                                       end - lends_space(t, end, own_mark));
        if (mark >= own_mark && !reached) {
            shared = out->n;
            reached = true;
        }
        unsigned flags = mark == MARK_TEMPLATE ? VOCAB_SPECIAL : 0;
        int rc = i == 0 ? encode_first(v, run, flags, out, e)
                        : vocab_encode(v, run.s, run.len, flags | VOCAB_NO_PREFIX, out, e);
        if (rc < 0)
            return rc;
        if (mark != MARK_TEMPLATE && !reached)
            shared = out->n;
    }
    if (n_shared)
        *n_shared = shared;
    return 0;
}
