/* The list of sections, and how a file becomes a job: parse the YAML, fill defaults, set each key,
 * then check what no single key shows (job_check.c). */
#include "pipeline/job.h"

#include "pipeline/job_check.h"
#include "stages/base/file.h"
#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_MAX_BYTES = 100, PATH_BYTES = 4096 };

/* The tables know their lengths only at link time, so each section points at its table's count. */
#define SECTION(name, what)                                                                    \
    {                                                                                          \
#name, what, name##_opts, &n_##name##_opts, offsetof(struct job, name)                 \
    }

const struct job_section job_sections[] = {
    SECTION(model, "The language model."),
    SECTION(ingest,
            "Where the documents come from, and the limits that hold for each of them."),
    SECTION(chunk, "How a long document is cut. It ends a chunk at the highest boundary that "
                   "fits (heading, paragraph, "
                   "sentence, word), never inside a character."),
    SECTION(prompt, "What the model is told. The texts are the job's own; a document's text is "
                    "never read as "
                    "an instruction of the template."),
    SECTION(task, "What is asked of each document."),
    SECTION(prefill, "Reading the prompts."),
    SECTION(decode, "Writing the answers."),
    SECTION(kv, "The memory of what was read: pages of keys and values."),
    SECTION(limits, "What the whole run may take."),
    SECTION(write, "Where the results go."),
};
const size_t n_job_sections = ARRAY_LEN(job_sections);

static const struct job_section *find_section(const char *name)
{
    for (size_t i = 0; i < n_job_sections; i++)
        if (strcmp(job_sections[i].name, name) == 0)
            return &job_sections[i];
    return NULL;
}

static void *config_of(struct job *j, const struct job_section *s)
{
    return (char *)j + s->offset;
}

/* ---- names that are wrong ---- */

static int unknown_section(const struct job_source *src, const struct job_entry *x,
                           struct err *e)
{
    if (strcmp(x->section, "job") == 0)
        return job_fail(
            src, x->at, e,
            "job has no value: it is the name of the job, such as \"job: minutes\"");
    struct opt_guess guess = {.wanted = x->section};
    for (size_t i = 0; i < n_job_sections; i++)
        opt_guess_add(&guess, job_sections[i].name);
    if (guess.best)
        return job_fail(src, x->at, e, "unknown section \"%s\": did you mean \"%s\"?",
                        x->section, guess.best);
    char names[256] = "";
    for (size_t i = 0, n = 0; i < n_job_sections; i++)
        n += (size_t)snprintf(names + n, sizeof(names) - n, " %s", job_sections[i].name);
    return job_fail(src, x->at, e, "unknown section \"%s\": sections are%s", x->section, names);
}

/* The nearest key of this section; else a section that has the key; else the nearest anywhere. */
static int unknown_key(const struct job_source *src, const struct job_entry *x, struct err *e)
{
    const char *where = *x->section ? x->section : "the top level";
    struct opt_guess near = {.wanted = x->key}, far = {.wanted = x->key};
    const char *owner = NULL, *far_owner = NULL;
    for (size_t i = 0; i < n_job_sections; i++) {
        const struct job_section *s = &job_sections[i];
        if (!owner && opt_find(s->opts, *s->n_opts, x->key))
            owner = s->name;
        for (size_t k = 0; k < *s->n_opts; k++) {
            const char *before = far.best;
            opt_guess_add(&far, s->opts[k].name);
            if (far.best != before)
                far_owner = s->name;
            if (strcmp(s->name, x->section) == 0)
                opt_guess_add(&near, s->opts[k].name);
        }
    }
    if (*x->section == '\0')
        opt_guess_add(&near, "job");
    if (owner)
        return job_fail(src, x->at, e, "unknown key \"%s\" in %s: %s belongs to %s", x->key,
                        where, x->key, owner);
    if (near.best && !(far.best && far.distance < near.distance))
        return job_fail(src, x->at, e, "unknown key \"%s\" in %s: did you mean \"%s\"?", x->key,
                        where, near.best);
    if (far.best)
        return job_fail(src, x->at, e, "unknown key \"%s\" in %s: did you mean \"%s\" of %s?",
                        x->key, where, far.best, far_owner);
    if (*x->section)
        return job_fail(src, x->at, e,
                        "unknown key \"%s\" in %s: \"quire help %s\" lists its keys", x->key,
                        where, where);
    return job_fail(src, x->at, e, "unknown key \"%s\": \"quire help\" lists the sections",
                    x->key);
}

/* ---- setting ---- */

static int set_name(struct job *j, const struct job_source *src, const struct job_entry *x,
                    struct err *e)
{
    if (x->list)
        return job_fail(src, x->at, e, "job takes one name, not a list");
    const struct job_value *v = x->values;
    size_t n = strlen(v->text);
    bool ok = n > 0 && n <= NAME_MAX_BYTES && isalnum((unsigned char)v->text[0]);
    for (const char *p = v->text; *p; p++)
        ok = ok && (isalnum((unsigned char)*p) || strchr("-_.", *p));
    if (!ok)
        return job_fail(
            src, v->at, e,
            "job: a name has letters, digits, \"-\", \"_\" and \".\", begins with a "
            "letter or digit, and has at most %d of them",
            NAME_MAX_BYTES);
    j->name = mem_strdup(v->text);
    return 0;
}

/* A job without a name is called as its file, in the letters that a name may have. */
static char *default_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = mem_strdup(slash ? slash + 1 : path);
    char *dot = strrchr(name, '.');
    if (dot && dot != name)
        *dot = '\0';
    if (strlen(name) > NAME_MAX_BYTES)
        name[NAME_MAX_BYTES] = '\0';
    for (char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && (p == name || !strchr("-_.", *p)))
            *p = p == name ? 'j' : '_';
    if (*name == '\0') {
        free(name);
        name = mem_strdup("job");
    }
    return name;
}

static int set_entry(struct job *j, const struct job_source *src, const struct job_entry *x,
                     const char *base, struct err *e)
{
    if (x->at.line == 0) /* from the command line */
        base = src->cwd;
    const struct job_section *s = find_section(x->section);
    if (*x->section == '\0' && strcmp(x->key, "job") == 0)
        return set_name(j, src, x, e);
    if (*x->section == '\0' && find_section(x->key))
        return job_fail(src, x->at, e, "%s is a section: its keys go below it, indented",
                        x->key);
    if (*x->section == '\0')
        return unknown_key(src, x, e);
    if (!s)
        return unknown_section(src, x, e);
    if (!x->key)
        return 0;
    const struct opt *o = opt_find(s->opts, *s->n_opts, x->key);
    if (!o)
        return unknown_key(src, x, e);
    bool many = o->type == OPT_STRINGS || o->type == OPT_PATHS;
    if (x->list && !many)
        return job_fail(src, x->at, e, "%s.%s takes one value, not a list", s->name, o->name);
    if (many)
        opt_release(o, 1, config_of(j, s)); /* the file's list replaces the default */
    for (const struct job_value *v = x->values; v; v = v->next) {
        struct err why = {0};
        if (opt_set(o, config_of(j, s), v->text, base, &why))
            return job_fail(src, v->at, e, "%s.%s: %s", s->name, o->name, why.msg);
    }
    return 0;
}

static int check_required(const struct job_source *src, struct err *e)
{
    struct job_place top = {1, 1};
    for (size_t i = 0; i < n_job_sections; i++) {
        const struct job_section *s = &job_sections[i];
        for (size_t k = 0; k < *s->n_opts; k++) {
            const struct opt *o = &s->opts[k];
            if (!(o->flags & OPT_REQUIRED))
                continue;
            const struct job_entry *x = job_file_find(src->file, s->name, o->name);
            if (x && x->values)
                continue;
            const struct job_entry *section = job_file_find(src->file, s->name, NULL);
            return job_fail(src,
                            x         ? x->at
                            : section ? section->at
                                      : top,
                            e, "%s.%s is %s. %s", s->name, o->name,
                            x ? "an empty list" : "missing", o->help);
        }
    }
    return 0;
}

/* ---- the whole ---- */

static char *absolute(const char *path)
{
    char cwd[PATH_BYTES];
    if (*path == '/' || !getcwd(cwd, sizeof(cwd)))
        return mem_strdup(path);
    if (strcmp(path, ".") == 0)
        return mem_strdup(cwd);
    /* The shell has expanded ~ already: here it is a letter like any other. */
    char *joined = mem_need(strlen(cwd) + strlen(path) + 2);
    sprintf(joined, "%s/%s", cwd, path);
    return joined;
}

int job_defaults(struct job *j, struct err *e)
{
    for (size_t i = 0; i < n_job_sections; i++) {
        const struct job_section *s = &job_sections[i];
        if (opt_defaults(s->opts, *s->n_opts, config_of(j, s), e))
            return err_wrap(e, "section %s", s->name);
    }
    return 0;
}

/* A text that names a file is one for every place the job is printed to. */
static void make_path(const struct job_source *src, const char *base, const char *section,
                      const char *key, char **text)
{
    const struct job_entry *x = job_file_find(src->file, section, key);
    char *path = file_join(x && x->at.line == 0 ? src->cwd : base, *text);
    free(*text);
    *text = path;
}

static int fill(struct job *j, const struct job_source *src, const char *base, struct err *e)
{
    if (job_defaults(j, e))
        return -(int)e->code;
    for (size_t i = 0; i < src->file->n; i++)
        if (set_entry(j, src, &src->file->entries[i], base, e))
            return -(int)e->code;
    if (!j->name)
        j->name = default_name(j->path);
    if (check_required(src, e))
        return -(int)e->code;
    const char *template = j->prompt.template, *packed = j->model.packed_cache;
    if (template && strpbrk(template, "/."))
        make_path(src, base, "prompt", "template", &j->prompt.template);
    if (strcmp(packed, "auto") != 0 && strcmp(packed, "no") != 0)
        make_path(src, base, "model", "packed_cache", &j->model.packed_cache);
    return job_check(j, src, e);
}

static bool takes_list(const char *section, const char *key)
{
    const struct job_section *s = find_section(section);
    const struct opt *o = s ? opt_find(s->opts, *s->n_opts, key) : NULL;
    return o && (o->type == OPT_STRINGS || o->type == OPT_PATHS);
}

/* "[a, b]" means what it means in a job file: it is read as one, and its items are set one by one. */
static int add_list(struct job_file *file, const char *section, const char *key,
                    const char *value, struct err *e)
{
    struct job_file *list = mem_need(sizeof(*list));
    struct buf text;
    struct err why = {0};
    buf_init(&text, JOB_FILE_BYTES);
    int rc = buf_addf(&text, e, "%s:\n  %s: %s\n", section, key, value);
    if (!rc && job_file_parse(list, text.data, text.len, key, &why) == 0) {
        const struct job_entry *x = job_file_find(list, section, key);
        bool sane = list->n == 2 && x && x->list && x->values;
        for (const struct job_value *v = sane ? x->values : NULL; v && !rc; v = v->next)
            rc = job_file_set(file, section, key, v->text, e);
        if (!rc && !sane)
            err_set(&why, REACH_JOB, ERR_CONFIG, "not a list");
        job_file_release(list);
    }
    if (!rc && why.code)
        rc = err_set(e, REACH_JOB, ERR_CONFIG,
                     "--set %s.%s: not a list with items: write [a, \"b, c\"], or repeat --set "
                     "%s.%s=VALUE",
                     section, key, section, key);
    buf_release(&text);
    free(list);
    return rc;
}

/* "decode.top_p=0.9" as an entry of the file. */
static int add_setting(struct job_file *file, const char *setting, struct err *e)
{
    const char *equals = strchr(setting, '='), *dot = strchr(setting, '.');
    char section[64] = "", key[64];
    bool sane = equals && equals != setting && equals - setting < (ptrdiff_t)sizeof(key);
    if (!sane)
        return err_set(e, REACH_JOB, ERR_CONFIG,
                       "--set %.60s: write section.key=value, such as decode.max_tokens=100",
                       setting);
    bool dotted = dot && dot < equals;
    const char *name = dotted ? dot + 1 : setting;
    if (dotted)
        snprintf(section, sizeof(section), "%.*s", (int)(dot - setting), setting);
    snprintf(key, sizeof(key), "%.*s", (int)(equals - name), name);
    const char *value = equals + 1;
    size_t n = strlen(value);
    if (n > 1 && value[0] == '[' && value[n - 1] == ']' && takes_list(section, key))
        return add_list(file, section, key, value, e);
    return job_file_set(file, section, key, value, e);
}

/* path is for messages, whole the absolute one, which this takes. */
static int parse(struct job *j, const char *text, size_t len, const char *path, char *whole,
                 const char *const *settings, size_t n, struct err *e)
{
    struct job_file *file = mem_need(sizeof(*file));
    *j = (struct job){.path = whole, .given = mem_strdup(path), .file = file};
    char *base = NULL, *cwd = absolute(".");
    int rc = job_file_parse(file, text, len, path, e);
    for (size_t i = 0; !rc && i < n; i++)
        rc = add_setting(file, settings[i], e);
    if (!rc) {
        struct job_source src = {.file = file, .path = path, .cwd = cwd};
        base = file_parent(j->path);
        rc = fill(j, &src, base, e);
    }
    free(base);
    free(cwd);
    if (rc)
        job_release(j);
    return rc;
}

int job_parse(struct job *j, const char *text, size_t len, const char *path, struct err *e)
{
    return parse(j, text, len, path, absolute(path), NULL, 0, e);
}

/* The absolute path of a file in its real folder, so that ../x is what the folder's listing shows. */
static char *without_links(const char *path)
{
    char *whole = absolute(path), *folder = file_parent(whole), *real = realpath(folder, NULL);
    free(folder);
    if (!real || !strrchr(whole, '/'))
        return whole;
    char *joined = file_join(real, strrchr(whole, '/') + 1);
    free(real);
    free(whole);
    return joined;
}

int job_load_with(struct job *j, const char *path, const char *const *settings, size_t n,
                  struct err *e)
{
    struct buf b;
    *j = (struct job){0};
    buf_init(&b, JOB_FILE_BYTES);
    int rc = file_read(path, &b, e);
    /* A wrong name on the command line, not a broken machine. */
    if (rc == -ERR_LIMIT || rc == -ERR_IO) {
        e->code = ERR_CONFIG;
        e->reach = REACH_JOB;
        rc = -ERR_CONFIG;
    }
    if (!rc)
        rc = parse(j, b.data ? b.data : "", b.len, path, without_links(path), settings, n, e);
    buf_release(&b);
    return rc;
}

int job_load(struct job *j, const char *path, struct err *e)
{
    return job_load_with(j, path, NULL, 0, e);
}

/* The entry of the key that a message begins with, or NULL. */
static const struct job_entry *named_entry(const struct job *j, const char *msg)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";
    char section[32], key[32];
    size_t n = strspn(msg, letters);
    if (msg[n] != '.' || n >= sizeof(section))
        return NULL;
    size_t k = strspn(msg + n + 1, letters);
    if (k == 0 || k >= sizeof(key))
        return NULL;
    snprintf(section, sizeof(section), "%.*s", (int)n, msg);
    snprintf(key, sizeof(key), "%.*s", (int)k, msg + n + 1);
    return job_file_find(j->file, section, key);
}

int job_locate(const struct job *j, struct err *e)
{
    if (!j->file)
        return -(int)e->code;
    const struct job_entry *x = named_entry(j, e->msg);
    if (!x)
        return err_wrap(e, "%s", j->given);
    struct job_place at = x->values && !x->list ? x->values->at : x->at;
    if (at.line == 0)
        return err_wrap(e, "--set");
    return err_wrap(e, "%s:%d:%d", j->given, at.line, at.column);
}

void job_release(struct job *j)
{
    for (size_t i = 0; i < n_job_sections; i++)
        opt_release(job_sections[i].opts, *job_sections[i].n_opts,
                    config_of(j, &job_sections[i]));
    if (j->file)
        job_file_release(j->file);
    free(j->file);
    free(j->given);
    free(j->name);
    free(j->path);
    *j = (struct job){0};
}
