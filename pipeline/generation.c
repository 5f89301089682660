#include "pipeline/generation.h"

#include "stages/model/model.h"

#include <stdio.h>
#include <string.h>

/* A setting as it would be written in a job file; the items of a list one under the other. */
static int value_text(const struct opt *o, const void *config, struct buf *out, struct err *e)
{
    struct buf item;
    int rc = 0;
    buf_init(&item, 1 << 24);
    buf_clear(out);
    for (size_t i = 0; rc == 0; i++) {
        buf_clear(&item);
        rc = opt_text(o, config, i, &item, e);
        if (rc == 0 && i > 0)
            rc = buf_addc(out, '\n', e);
        if (rc == 0)
            rc = buf_add(out, item.data ? item.data : "", item.len, e);
        if (o->type != OPT_STRINGS && o->type != OPT_PATHS)
            break;
    }
    buf_release(&item);
    return rc < 0 ? rc : 0;
}

static int add_options(struct ledger_settings *out, const struct job *job, struct err *e)
{
    struct buf text;
    int rc = 0;
    buf_init(&text, 1 << 26);
    for (size_t i = 0; i < n_job_sections; i++) {
        const struct job_section *sec = &job_sections[i];
        for (size_t k = 0; k < *sec->n_opts && !rc; k++) {
            const struct opt *o = &sec->opts[k];
            char key[96];
            if (o->flags & OPT_FREE)
                continue;
            rc = value_text(o, (const char *)job + sec->offset, &text, e);
            snprintf(key, sizeof(key), "%s.%s", sec->name, o->name);
            if (!rc)
                ledger_settings_add(out, key, text.len ? text.data : "", o->flags & OPT_LIMIT);
        }
    }
    buf_release(&text);
    return rc;
}

static void add_number(struct ledger_settings *out, const char *key, int64_t n)
{
    char text[32];
    snprintf(text, sizeof(text), "%lld", (long long)n);
    ledger_settings_add(out, key, text, false);
}

static void add_digest(struct ledger_settings *out, const char *key, const char *name,
                       const uint8_t digest[HASH_BYTES])
{
    char hex[HASH_HEX], text[192];
    hash_hex(digest, hex);
    snprintf(text, sizeof(text), "%s%s%s", name, name[0] ? " " : "", hex);
    ledger_settings_add(out, key, text, false);
}

int generation_settings(struct ledger_settings *out, const struct setup *s,
                        const struct job *job, struct err *e)
{
    uint8_t digest[HASH_BYTES];
    char model[HASH_HEX + sizeof(s->facts.model_name) + 2];
    enum codec_kind codec = (enum codec_kind)job->kv.codec;
    ledger_settings_add(out, "job", job->name, false);
    snprintf(model, sizeof(model), "%s %s", s->facts.model_digest, s->facts.model_name);
    ledger_settings_add(out, "model", model, false);
    add_number(out, "model.context", s->plan.context);
    int rc = add_options(out, job, e);
    chat_digest(s->chat, digest);
    add_digest(out, "prompt.template", chat_family(s->chat), digest);
    prompts_digest(s->prompts, digest);
    add_digest(out, "prompt.texts", "", digest);
    /* Before pages of 8 bits were kept as such in memory, q8 gave other answers. */
    ledger_settings_add(out, "kv.codec",
                        s->plan.small_slice     ? "q8 in memory"
                        : codec_is_lossy(codec) ? codec_name(codec)
                                                : "exact",
                        false);
    add_number(out, "quire.arithmetic", model_arithmetic_version());
    add_number(out, "quire.record", RECORD_VERSION);
    return rc;
}

void generation_digest(const struct ledger_settings *s, char hex[HASH_HEX])
{
    uint8_t digest[HASH_BYTES];
    struct hash h;
    hash_init(&h);
    for (size_t i = 0; i < s->n; i++)
        if (!s->at[i].limit)
            hash_field(&h, s->at[i].key, s->at[i].value, strlen(s->at[i].value));
    hash_end(&h, digest);
    hash_hex(digest, hex);
}
