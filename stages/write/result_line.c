#include "stages/write/result_line.h"

#include "stages/base/mem.h"
#include "stages/write/result.h"

#include <stdlib.h>
#include <string.h>

static const char *text_at(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static bool is_hex(const char *s, size_t n)
{
    return s && strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

static bool read_status(struct result_line *l)
{
    const char *word = text_at(l->json, "status");
    const json_t *error = json_object_get(l->json, "error");
    for (int i = 0; word && i < DOC_STATUS_COUNT; i++) {
        l->status = (enum doc_status)i;
        if (strcmp(word, result_status_name(l->status)) != 0)
            continue;
        if (l->status == DOC_FAILED) {
            l->code = text_at(error, "code");
            l->message = text_at(error, "message");
            return l->code && l->message;
        }
        return json_is_null(error);
    }
    return false;
}

static bool read_chain(const struct result_line *l)
{
    const json_t *chain = json_object_get(l->json, "chain"), *name;
    size_t i;
    json_array_foreach(chain, i, name) if (!json_is_string(name)) return false;
    return json_is_array(chain);
}

int result_line_parse(struct result_line *l, const char *text, size_t n, struct err *e)
{
    json_error_t why;
    *l = (struct result_line){.code = "", .message = ""};
    l->json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!l->json)
        return err_set(e, REACH_DOC, ERR_FORMAT, "not JSON: %s", why.text);
    const char *schema = text_at(l->json, "schema");
    const json_t *ordinal = json_object_get(l->json, "ordinal"),
                 *model = json_object_get(l->json, "model");
    const char *bad = NULL;
    l->job = text_at(l->json, "job");
    l->id = text_at(l->json, "id");
    l->source = text_at(l->json, "source");
    l->ordinal = json_integer_value(ordinal);
    l->model_digest = text_at(model, "digest");
    l->prompt_digest = text_at(l->json, "prompt_digest");
    if (!schema || strcmp(schema, RESULT_SCHEMA) != 0)
        bad = "schema";
    else if (!l->job)
        bad = "job";
    else if (!json_is_integer(ordinal) || l->ordinal < 0)
        bad = "ordinal";
    else if (!is_hex(l->id, 32))
        bad = "id";
    else if (!l->source)
        bad = "source";
    else if (!read_chain(l))
        bad = "chain";
    else if (!read_status(l))
        bad = "status";
    else if (!l->model_digest || !text_at(model, "name"))
        bad = "model";
    else if (!l->prompt_digest)
        bad = "prompt_digest";
    if (!bad)
        return 0;
    result_line_release(l);
    return err_set(e, REACH_DOC, ERR_FORMAT, "no record of %s: look at \"%s\"", RESULT_SCHEMA,
                   bad);
}

void result_line_release(struct result_line *l)
{
    json_decref(l->json);
    *l = (struct result_line){0};
}

char *result_line_print(struct result_line *l, int64_t ordinal, const char *source)
{
    if (json_object_set_new(l->json, "ordinal", json_integer(ordinal)) != 0 ||
        json_object_set_new(l->json, "source", result_text(source)) != 0)
        return NULL;
    l->ordinal = ordinal;
    l->source = text_at(l->json, "source");
    return json_dumps(l->json, RESULT_JSON_FLAGS);
}

unsigned result_line_flags(const struct result_line *l)
{
    const json_t *flag;
    unsigned flags = 0;
    size_t i;
    json_array_foreach(json_object_get(l->json, "flags"), i, flag)
    {
        if (json_is_string(flag))
            flags |= result_flag(json_string_value(flag));
    }
    return flags;
}

char *result_line_name(const struct result_line *l)
{
    const json_t *chain = json_object_get(l->json, "chain"), *name;
    size_t i, n = strlen(l->source) + 1;
    json_array_foreach(chain, i, name) n += json_string_length(name) + 1;
    char *out = mem_need(n), *p = stpcpy(out, l->source);
    json_array_foreach(chain, i, name)
    {
        *p++ = '/';
        p = stpcpy(p, json_string_value(name));
    }
    return out;
}
