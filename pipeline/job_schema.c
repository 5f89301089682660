/* The option tables as a JSON Schema (draft 7, which editors' YAML servers read). */
#include "pipeline/job_docs.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *pattern(const char *regex)
{
    return json_pack("{s:s, s:s}", "type", "string", "pattern", regex);
}

/* Editors read yes and no as texts (YAML 1.2) or as booleans (1.1), and null as no value. */
static json_t *enum_of(const struct opt *o)
{
    json_t *names = json_array();
    for (int i = 0; o->names[i]; i++) {
        json_array_append_new(names, json_string(o->names[i]));
        if (strcmp(o->names[i], "null") == 0)
            json_array_append_new(names, json_null());
    }
    return json_pack("{s:o}", "enum", names);
}

static json_t *number_of(const struct opt *o, const char *type)
{
    json_t *x = json_pack("{s:s}", "type", type);
    if (o->min < o->max) {
        bool whole = strcmp(type, "integer") == 0;
        json_object_set_new(x, "minimum",
                            whole ? json_integer((json_int_t)o->min) : json_real(o->min));
        json_object_set_new(x, "maximum",
                            whole ? json_integer((json_int_t)o->max) : json_real(o->max));
    }
    return x;
}

static json_t *value_of(const struct opt *o)
{
    switch (o->type) {
    case OPT_BOOL:
        return json_pack("{s:[b, b, s, s]}", "enum", 1, 0, "yes", "no");
    case OPT_INT:
    case OPT_TOKENS:
        return number_of(o, "integer");
    case OPT_FLOAT:
        return number_of(o, "number");
    case OPT_BYTES:
        return json_pack("{s:[o, o]}", "anyOf",
                         json_pack("{s:s, s:i}", "type", "integer", "minimum", 0),
                         pattern("^[0-9.]+ *(KiB|MiB|GiB|TiB)?$"));
    case OPT_SECONDS:
        return pattern("^[0-9.]+ *(ms|s|m|h)$");
    case OPT_ENUM:
        return enum_of(o);
    case OPT_STRING:
    case OPT_PATH:
        return json_pack("{s:s}", "type", "string");
    case OPT_STRINGS:
    case OPT_PATHS:
        break;
    }
    return json_pack("{s:[{s:s}, {s:s, s:{s:s}}]}", "anyOf", "type", "string", "type", "array",
                     "items", "type", "string");
}

static json_t *section_of(const struct job_section *s)
{
    json_t *keys = json_object(), *required = json_array();
    for (size_t k = 0; k < *s->n_opts; k++) {
        const struct opt *o = &s->opts[k];
        char expects[256];
        opt_expects(o, expects, sizeof(expects));
        json_t *x = value_of(o);
        json_object_set_new(x, "description",
                            json_sprintf("%s (%s%s%s)", o->help, expects,
                                         o->def ? "; default " : "", o->def ? o->def : ""));
        json_object_set_new(keys, o->name, x);
        if (o->flags & OPT_REQUIRED)
            json_array_append_new(required, json_string(o->name));
    }
    json_t *x = json_pack("{s:s, s:s, s:b, s:o}", "type", "object", "description", s->help,
                          "additionalProperties", 0, "properties", keys);
    if (json_array_size(required))
        json_object_set(x, "required", required);
    json_decref(required);
    return x;
}

int job_docs_schema(struct buf *out, struct err *e)
{
    json_t *sections = json_object();
    json_object_set_new(
        sections, "job",
        json_pack("{s:s, s:s, s:s}", "type", "string", "pattern",
                  "^[A-Za-z0-9][A-Za-z0-9_.-]*$", "description",
                  "The name of the job (default: the file's name without its ending)"));
    for (size_t i = 0; i < n_job_sections; i++)
        json_object_set_new(sections, job_sections[i].name, section_of(&job_sections[i]));
    json_t *root = json_pack("{s:s, s:s, s:s, s:b, s:[s, s], s:o}", "$schema",
                             "http://json-schema.org/draft-07/schema#", "title",
                             "quire job file", "type", "object", "additionalProperties", 0,
                             "required", "ingest", "write", "properties", sections);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(root);
    int rc = text ? buf_addf(out, e, "%s\n", text)
                  : err_set(e, REACH_JOB, ERR_NOMEM, "no memory for the schema");
    free(text);
    return rc;
}
