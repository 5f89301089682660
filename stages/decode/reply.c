#include "stages/decode/reply.h"

#include "stages/base/mem.h"
#include "stages/decode/stop.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of one token at most, on average: the longest tokens known are runs of 128 spaces. */
enum { TOKEN_BYTES = 1024, PROMPT_TAIL = 8 };

void reply_rules_init(struct reply_rules *r, const struct decode_config *c,
                      const struct vocab *v, const struct chat *chat)
{
    *r = (struct reply_rules){.config = c, .vocab = v, .open_id = -1, .close_id = -1};
    const char *open_mark, *close_mark;
    if (!chat || !chat_thinking(chat, &open_mark, &close_mark))
        return;
    r->think_open = open_mark;
    r->think_close = close_mark;
    r->open_id = vocab_find(v, open_mark);
    r->close_id = vocab_find(v, close_mark);
}

/* The bytes that a token adds. Marks of thinking count even where the vocabulary calls them control tokens,
 * which have no bytes. */
static const char *bytes_of(const struct reply_rules *r, int32_t id, size_t *len)
{
    if (r->think_open && (id == r->open_id || id == r->close_id)) {
        const char *mark = id == r->open_id ? r->think_open : r->think_close;
        *len = strlen(mark);
        return mark;
    }
    return vocab_piece(r->vocab, id, len);
}

/* Does the prompt itself open the thinking, as some templates do? */
static int prompt_thinks(const struct reply_rules *r, const int32_t *prompt, int n,
                         bool *thinks, struct err *e)
{
    struct buf tail;
    buf_init(&tail, SIZE_MAX);
    int rc = 0;
    for (int i = n > PROMPT_TAIL ? n - PROMPT_TAIL : 0; i < n && rc == 0; i++) {
        size_t len;
        const char *s = bytes_of(r, prompt[i], &len);
        rc = buf_add(&tail, s, len, e);
    }
    *thinks = rc == 0 && tail.len > 0 && mark_at_end(r->think_open, tail.data, tail.len);
    buf_release(&tail);
    return rc;
}

int reply_open(struct reply *r, const struct reply_rules *rules, const int32_t *prompt,
               int n_prompt, int32_t *tokens, int max_tokens, struct err *e)
{
    *r = (struct reply){.rules = rules,
                        .tokens = tokens,
                        .max_tokens = max_tokens,
                        .thinking = rules->think_open ? REPLY_UNDECIDED : REPLY_ANSWERS};
    buf_init(&r->raw, (size_t)max_tokens * TOKEN_BYTES);
    r->ends = mem_alloc((size_t)max_tokens * sizeof(*r->ends));
    if (!r->ends)
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for an answer of %d tokens",
                       max_tokens);
    bool thinks = false;
    if (rules->think_open && prompt_thinks(rules, prompt, n_prompt, &thinks, e) != 0)
        return -(int)e->code;
    if (thinks)
        r->thinking = REPLY_THINKS;
    return 0;
}

void reply_close(struct reply *r)
{
    free(r->ends);
    buf_release(&r->raw);
    r->ends = NULL;
}

static void follow_thinking(struct reply *r, size_t before)
{
    const struct reply_rules *rules = r->rules;
    if (r->thinking == REPLY_UNDECIDED) {
        bool undecided;
        if (mark_in_front(rules->think_open, r->raw.data, r->raw.len, &undecided))
            r->thinking = REPLY_THINKS;
        else if (!undecided)
            r->thinking = REPLY_ANSWERS;
    }
    if (r->thinking != REPLY_THINKS)
        return;
    size_t at;
    if (text_find(rules->think_close, r->raw.data, r->raw.len, before, &at)) {
        r->thinking = REPLY_ANSWERS;
        r->visible = r->searched = at + strlen(rules->think_close);
        r->n_thinking = r->n;
    }
}

static bool stop_string(struct reply *r)
{
    size_t at;
    if (r->thinking != REPLY_ANSWERS)
        return false;
    bool found = stop_find(&r->rules->config->stop, r->raw.data + r->visible,
                           r->raw.len - r->visible, r->searched - r->visible, &at);
    r->searched = r->raw.len;
    if (found)
        r->cut = r->visible + at;
    return found;
}

/* Does a sentence or a line end at byte `end`, white space apart? */
static bool ends_well(const struct reply *r, size_t end)
{
    static const char *const marks[] = {".", "!", "?", "\u3002", "\uff01", "\uff1f"};
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (mark_at_end(marks[i], r->raw.data, end))
            return true;
    return end > 0 && r->raw.data[end - 1] == '\n';
}

/* A loop is noticed at any place of what it repeats: one instance stays, up to the end of its sentence. */
static bool loops(struct reply *r)
{
    int begin, period = repetition_push(&r->repetition, r->tokens, r->n, &begin);
    if (!r->rules->config->stop_repetition || period == 0)
        return false;
    int last = begin + period - 1, k = last;
    while (k < last + period && !ends_well(r, r->ends[k]))
        k++;
    r->cut = r->ends[k < last + period ? k : last];
    return true;
}

int reply_add(struct reply *r, int32_t id, struct err *e)
{
    size_t before = r->raw.len, len = 0;
    r->tokens[r->n++] = id;
    bool end = vocab_is_end(r->rules->vocab, id);
    const char *s = end ? NULL : bytes_of(r->rules, id, &len);
    if (len > 0 && buf_add(&r->raw, s, len, e) != 0)
        return err_wrap(e, "answer");
    r->ends[r->n - 1] = r->cut = r->raw.len;
    if (end) {
        r->stopped_by = STOP_EOS;
        return 0;
    }
    if (r->raw.len > before) {
        follow_thinking(r, before);
        if (stop_string(r)) {
            r->stopped_by = STOP_STRING;
            return 0;
        }
    }
    if (loops(r))
        r->stopped_by = STOP_REPETITION;
    else if (r->n == r->max_tokens)
        r->stopped_by = STOP_MAX_TOKENS;
    return 0;
}

int reply_answer(const struct reply *r, struct answer *out, struct err *e)
{
    bool drop = r->rules->config->thinking == THINKING_DROP;
    size_t begin = drop ? r->visible : 0, end = r->cut;
    unsigned flags = 0;
    if (r->thinking == REPLY_THINKS && drop)
        begin = end;
    if (begin > end) /* a loop that began inside the thinking */
        begin = end;
    if (drop && (r->visible > 0 || r->thinking == REPLY_THINKS))
        flags |= ANSWER_THINKING;
    if (r->stopped_by == STOP_MAX_TOKENS)
        flags |= ANSWER_TRUNCATED;
    if (r->stopped_by == STOP_REPETITION)
        flags |= ANSWER_REPETITIVE;
    size_t len;
    char *text = answer_clean(r->raw.data + begin, end - begin, &len);
    if (!text)
        return err_set(e, REACH_DOC, ERR_NOMEM, "no memory for an answer of %zu bytes",
                       end - begin);
    *out = (struct answer){.text = text,
                           .len = len,
                           .n_tokens = r->n,
                           .n_thinking = r->thinking == REPLY_THINKS ? r->n : r->n_thinking,
                           .stopped_by = r->stopped_by,
                           .flags = flags | (len == 0 ? ANSWER_EMPTY : 0)};
    return 0;
}
