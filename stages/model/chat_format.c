/* The families' strings are the published prompt formats of their models. */
#include "stages/model/chat_format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct chat_format chat_formats[] = {
    {"chatml", "<|im_start|>", "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n",
     "<|im_end|>\n", "<|im_start|>assistant\n", "<|im_end|>\n", "<|im_start|>assistant\n",
     false, false},
    {"gemma", "<start_of_turn>", NULL, NULL, "<start_of_turn>user\n", "<end_of_turn>\n",
     "<start_of_turn>model\n", "<end_of_turn>\n", "<start_of_turn>model\n", true, true},
    {"llama3", "<|start_header_id|>", "<|start_header_id|>system<|end_header_id|>\n\n",
     "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>",
     "<|start_header_id|>assistant<|end_header_id|>\n\n", true, true},
    {"mistral-v1", "[INST]", NULL, NULL, " [INST] ", " [/INST]", " ", CHAT_EOS, "", false,
     true},
    {"mistral-v3", "[INST]", NULL, NULL, "[INST] ", "[/INST]", " ", CHAT_EOS, "", false, true},
    {"mistral-v3-tekken", "[INST]", NULL, NULL, "[INST]", "[/INST]", "", CHAT_EOS, "", false,
     true},
    /* The first Mistral templates: no space in front of [INST]; one after EOS, or none. */
    {"mistral-v1", "[INST]", NULL, NULL, "[INST] ", " [/INST]", "", CHAT_EOS " ", "", false,
     true},
    {"mistral-v1", "[INST]", NULL, NULL, "[INST] ", " [/INST]", "", CHAT_EOS, "", false, true},
    {"zephyr", "<|assistant|>", "<|system|>\n", CHAT_EOS "\n", "<|user|>\n", CHAT_EOS "\n",
     "<|assistant|>\n", CHAT_EOS "\n", "<|assistant|>\n", false, false},
    {"phi3", "<|assistant|>", "<|system|>\n", "<|end|>\n", "<|user|>\n", "<|end|>\n",
     "<|assistant|>\n", "<|end|>\n", "<|assistant|>\n", false, false},
};
const size_t n_chat_formats = ARRAY_LEN(chat_formats);

void chat_quirks_release(struct chat_quirks *q)
{
    free(q->system_before);
    free(q->system_default);
    *q = (struct chat_quirks){0};
}

const struct chat_format *chat_format_find(const char *family)
{
    for (size_t i = 0; i < n_chat_formats; i++)
        if (strcmp(chat_formats[i].family, family) == 0)
            return &chat_formats[i];
    return NULL;
}

struct chat_quirks chat_format_quirks(const struct chat_format *f)
{
    return (struct chat_quirks){.bos = f->bos,
                                .trim_turns = f->trims,
                                .trim_answers = f->trims,
                                .trim_system = f->trims && f->system_open,
                                .no_system = !f->system_open};
}

void chat_format_names(char *out, size_t cap)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n_chat_formats; i++) {
        const char *name = chat_formats[i].family;
        if (chat_format_find(name) != &chat_formats[i])
            continue;
        int n = snprintf(out + used, cap - used, "%s%s", used ? ", " : "", name);
        if (n < 0 || (size_t)n >= cap - used)
            return;
        used += (size_t)n;
    }
}

/* A string of the table, with the EOS mark replaced. */
static int add_fixed(struct marked *out, const char *s, const char *eos, struct err *e)
{
    int rc = 0;
    while (rc == 0 && *s) {
        size_t n = strcspn(s, CHAT_EOS);
        rc = marked_add(out, s, n, MARK_TEMPLATE, e);
        s += n;
        if (rc == 0 && *s) {
            rc = marked_adds(out, eos, MARK_TEMPLATE, e);
            s++;
        }
    }
    return rc;
}

static int add_system(const struct chat_format *f, const struct chat_quirks *q, const char *eos,
                      struct mtext text, struct marked *out, struct err *e)
{
    int rc = add_fixed(out, f->system_open, eos, e);
    if (rc == 0 && q->system_before)
        rc = marked_adds(out, q->system_before, MARK_TEMPLATE, e);
    if (rc == 0)
        rc = marked_join(out, q->trim_system ? mtext_strip(text) : text, e);
    return rc < 0 ? rc : add_fixed(out, f->system_close, eos, e);
}

int chat_format_render(const struct chat_format *f, const struct chat_quirks *q,
                       const char *eos, const struct chat_message *msgs, int n,
                       struct marked *out, struct err *e)
{
    struct mtext system = {0}; /* waits for the first user turn */
    bool has_role = f->system_open && !q->no_system,
         given = n > 0 && msgs[0].role == CHAT_SYSTEM;
    int rc = 0;
    if (given && !has_role)
        system = msgs[0].text;
    else if (given && (msgs[0].text.len || q->system_before))
        rc = add_system(f, q, eos, msgs[0].text, out, e);
    if (!given && f->system_open && (q->system_before || q->system_default))
        rc =
            add_system(f, q, eos, mtext_of(q->system_default ? q->system_default : ""), out, e);
    for (int i = given; rc == 0 && i < n; i++) {
        bool user = msgs[i].role == CHAT_USER;
        bool trim = user ? q->trim_turns : q->trim_answers;
        struct mtext text = trim ? mtext_strip(msgs[i].text) : msgs[i].text;
        rc = add_fixed(out, user ? f->user_open : f->answer_open, eos, e);
        if (rc == 0 && user && system.len) {
            rc = marked_join(out, q->trim_system ? mtext_strip(system) : system, e);
            if (rc == 0)
                rc = marked_adds(out, "\n\n", MARK_TEMPLATE, e);
            system.len = 0;
        }
        if (rc == 0)
            rc = marked_join(out, text, e);
        if (rc == 0)
            rc = add_fixed(out, user ? f->user_close : f->answer_close, eos, e);
    }
    return rc < 0 ? rc : add_fixed(out, f->header, eos, e);
}
