#include "pipeline/cmd_prompt.h"

#include "pipeline/setup.h"
#include "stages/base/utf8.h"

static const char example[] =
    "The committee met on Monday. It agreed to repair the bridge before winter.";

/* Bytes in double quotes; what is not printable UTF-8 (a token may be a part of a character) as \xNN. */
static int add_quoted(const char *s, size_t n, struct buf *out, struct err *e)
{
    int rc = buf_addc(out, '"', e);
    for (size_t i = 0; !rc && i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (s[i] == '\n')
            rc = buf_adds(out, "\\n", e);
        else if (s[i] == '\t')
            rc = buf_adds(out, "\\t", e);
        else if (s[i] == '"' || s[i] == '\\')
            rc = buf_addf(out, e, "\\%c", s[i]);
        else if (len < 0 || cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
            rc = buf_addf(out, e, "\\x%02x", (unsigned char)s[i]), len = 1;
        else
            rc = buf_add(out, s + i, (size_t)len, e);
        i += (size_t)len;
    }
    return rc ? rc : buf_addc(out, '"', e);
}

int cmd_print_token(const struct vocab *v, int32_t id, struct buf *out, struct err *e)
{
    size_t n;
    bool special = vocab_is_special(v, id);
    const char *s = special ? vocab_name(v, id, &n) : vocab_piece(v, id, &n);
    int rc = buf_addf(out, e, "%d\t", (int)id);
    if (!rc)
        rc = add_quoted(s, n, out, e);
    return rc ? rc
              : buf_addf(out, e, "%s%s\n", special ? "\tspecial" : "",
                         vocab_is_end(v, id) ? "\tend" : "");
}

/* The prompt is built with the example and with nothing: what both begin and end with is the job's own. */
static int print_prompt(const struct setup *s, enum prompt_kind kind, const struct job *j,
                        struct buf *out, struct err *e)
{
    const struct vocab *v = model_vocab(s->model);
    struct prompt_values values = {
        .text = example, .text_len = sizeof(example) - 1, .title = "Minutes"};
    values.question = j->task.kind == TASK_ASK ? j->task.questions.items[0] : NULL;
    struct token_list with = {0}, without = {0};
    int n_shared = 0, n_shared_empty = 0, first = 0, last = 0;
    int rc = prompt_build(s->prompts, kind, &values, &with, &n_shared, e);
    values.text_len = 0;
    if (!rc)
        rc = prompt_build(s->prompts, kind, &values, &without, &n_shared_empty, e);
    while (first < with.n && first < without.n && with.ids[first] == without.ids[first])
        first++;
    while (last < with.n - first && last < without.n - first &&
           with.ids[with.n - 1 - last] == without.ids[without.n - 1 - last])
        last++;
    if (!rc)
        rc = buf_addf(
            out, e,
            "# %s: %d tokens; the first %d are the same in every prompt, computed once\n",
            kind == PROMPT_DOCUMENT ? "over a document or chunk" : "over partial answers",
            with.n, n_shared);
    for (int i = 0; !rc && i < with.n; i++) {
        rc = buf_adds(out,
                      i >= first && i < with.n - last ? "text\t"
                      : i < n_shared                  ? "shared\t"
                                                      : "own\t",
                      e);
        if (!rc)
            rc = cmd_print_token(v, with.ids[i], out, e);
    }
    token_list_release(&with);
    token_list_release(&without);
    return rc;
}

int cmd_show_prompt(const struct job *j, struct buf *out, struct err *e)
{
    struct setup s = {0};
    int rc = setup_read(&s, j, e);
    if (!rc)
        rc = print_prompt(&s, PROMPT_DOCUMENT, j, out, e);
    if (!rc && j->task.kind != TASK_COMPLETE && j->task.strategy != STRATEGY_SINGLE) {
        rc = buf_addc(out, '\n', e);
        if (!rc)
            rc = print_prompt(&s, PROMPT_REDUCE, j, out, e);
    }
    setup_close(&s);
    return rc;
}
