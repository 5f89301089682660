/* Texts of the option tables for people: the terminal and docs/job-file.md. */
#include "pipeline/job_docs.h"

#include <string.h>

enum { WIDTH = 80, EXPECT_BYTES = 256, DEFAULT_BYTES = 128 };

int job_docs_wrap(struct buf *out, int indent, const char *text, struct err *e)
{
    int rc = 0;
    while (!rc && *text) {
        size_t n = strlen(text), room = (size_t)(WIDTH - indent);
        if (n > room) { /* break at the last space that fits; a longer word stays whole */
            n = room;
            while (n > 0 && text[n] != ' ')
                n--;
            if (n == 0)
                n = strcspn(text, " ");
        }
        rc = buf_addf(out, e, "%*s%.*s\n", indent, "", (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
    return rc;
}

/* "256", "none" for an unset text, "an empty list". */
static const char *default_of(const struct opt *o)
{
    if (o->flags & OPT_REQUIRED)
        return "required";
    if (o->def)
        return o->def;
    return o->type == OPT_STRINGS || o->type == OPT_PATHS ? "an empty list" : "unset";
}

/* The first sentence of a help text. */
static int summary_length(const char *help)
{
    const char *end = strstr(help, ". ");
    return (int)(end ? (size_t)(end - help) + 1 : strlen(help));
}

int job_docs_sections(struct buf *out, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < n_job_sections; i++)
        rc = buf_addf(out, e, "  %-10s%.*s\n", job_sections[i].name,
                      summary_length(job_sections[i].help), job_sections[i].help);
    return rc;
}

int job_docs_section(const struct job_section *s, struct buf *out, struct err *e)
{
    int rc = buf_addf(out, e, "%s:\n", s->name);
    if (!rc)
        rc = job_docs_wrap(out, 2, s->help, e);
    for (size_t k = 0; !rc && k < *s->n_opts; k++) {
        const struct opt *o = &s->opts[k];
        char expects[EXPECT_BYTES], first[512];
        opt_expects(o, expects, sizeof(expects));
        rc = buf_addf(out, e, "\n  %s   (%s; %s%s)\n", o->name, expects,
                      o->flags & OPT_REQUIRED || !o->def ? "" : "default ", default_of(o));
        size_t n = (size_t)summary_length(o->help);
        if (n >= sizeof(first))
            n = sizeof(first) - 1;
        memcpy(first, o->help, n);
        first[n] = '\0';
        if (!rc)
            rc = job_docs_wrap(out, 6, first, e);
    }
    return rc ? rc
              : buf_addf(out, e, "\n\"quire help %s.KEY\" says all about a key.\n", s->name);
}

int job_docs_key(const struct job_section *s, const struct opt *o, struct buf *out,
                 struct err *e)
{
    char expects[EXPECT_BYTES];
    opt_expects(o, expects, sizeof(expects));
    int rc = buf_addf(out, e, "%s.%s\n", s->name, o->name);
    if (!rc)
        rc = job_docs_wrap(out, 2, o->help, e);
    if (!rc)
        rc = buf_addf(out, e, "\n  takes    %s\n  default  %s\n", expects, default_of(o));
    if (!rc && o->flags & OPT_ENV)
        rc = buf_adds(out, "  ${NAME} is replaced by the environment.\n", e);
    const char *sample = o->def && *o->def                             ? o->def
                         : o->type == OPT_PATHS || o->type == OPT_PATH ? "PATH"
                                                                       : "TEXT";
    if (!rc)
        rc = buf_addf(out, e, "\n  %s:\n    %s: %s\n", s->name, o->name, sample);
    return rc;
}

/* ---- Markdown ---- */

static const char head[] =
    "# The job file\n"
    "\n"
    "Generated from the tables of options by `quire help --markdown`; `scons docs` writes it "
    "anew.\n"
    "\n"
    "A job file is YAML. Its sections are named and ordered like the stages, so that reading "
    "it from top to\n"
    "bottom is reading the flow of the documents. Only `ingest.from`, `write.to` and "
    "`model.file` must be there.\n"
    "\n"
    "```yaml\n"
    "job: minutes                      # a name; default: the file's own, without its ending\n"
    "model:\n"
    "  file: models/smollm2-135m-instruct-q4_1.gguf\n"
    "ingest:\n"
    "  from: [archive/*.zip, inbox]\n"
    "  include: [\"*.txt\", \"*.md\"]       # texts that begin with * need quotes\n"
    "prompt:\n"
    "  document: |\n"
    "    Summarize the minutes below in at most five sentences.\n"
    "\n"
    "    {{text}}\n"
    "decode:\n"
    "  max_tokens: 200\n"
    "limits:\n"
    "  memory: 6GiB\n"
    "write:\n"
    "  to: out/minutes\n"
    "  formats: [jsonl, markdown]\n"
    "```\n"
    "\n"
    "`quire check JOB` parses a job and shows its plan, `quire show JOB` prints it with every "
    "default filled in,\n"
    "`quire help KEY` explains a key. [job.schema.json](job.schema.json) gives editors the "
    "same knowledge: put\n"
    "`# yaml-language-server: $schema=PATH/job.schema.json` at the top of a job file.\n"
    "\n"
    "## How values are written\n"
    "\n"
    "| | |\n"
    "|---|---|\n"
    "| sizes | bytes as a number, or with `KiB`, `MiB`, `GiB`, `TiB`: `64MiB` (`M` and `MB` "
    "are refused: they mean two things) |\n"
    "| times | with `ms`, `s`, `m` or `h`: `500ms`, `30s`, `8h` |\n"
    "| tokens, counts | bare numbers |\n"
    "| yes or no | `yes`, `no`, `true`, `false` |\n"
    "| paths | relative to the folder of the job file; `~/` is the home folder |\n"
    "| lists | `[a, b]`, one item per line after `- `, or a single text |\n"
    "| `${NAME}` | the environment, only in keys that say so; a plain `${` is written `$${` |\n"
    "| long texts | after `key: \\|`, indented, lines and all |\n"
    "\n"
    "Anchors, aliases, tags, merge keys and a second document are refused, and so are a key "
    "that is there twice\n"
    "and a key that nobody knows. A key can be set for one run: `quire run JOB --set "
    "decode.max_tokens=100`; paths\n"
    "are then relative to where you are, and a list is `--set 'decode.stop=[a, b]'` or one "
    "`--set` for each\n"
    "item.\n";

/* A table cell: a bar would end it, and < would begin a tag. */
static int add_cell(struct buf *out, const char *s, struct err *e)
{
    int rc = 0;
    for (; !rc && *s; s++) {
        if (*s == '|')
            rc = buf_adds(out, "\\|", e);
        else if (*s == '<')
            rc = buf_adds(out, "&lt;", e);
        else
            rc = buf_addc(out, *s, e);
    }
    return rc;
}

int job_docs_markdown(struct buf *out, struct err *e)
{
    int rc = buf_adds(out, head, e);
    for (size_t i = 0; !rc && i < n_job_sections; i++) {
        const struct job_section *s = &job_sections[i];
        rc = buf_addf(out, e,
                      "\n## %s\n\n%s\n\n| key | takes | default | |\n|---|---|---|---|\n",
                      s->name, s->help);
        for (size_t k = 0; !rc && k < *s->n_opts; k++) {
            const struct opt *o = &s->opts[k];
            char expects[EXPECT_BYTES];
            opt_expects(o, expects, sizeof(expects));
            rc = buf_addf(out, e, "| `%s` | %s | %s | ", o->name, expects, default_of(o));
            if (!rc)
                rc = add_cell(out, o->help, e);
            if (!rc && o->flags & OPT_ENV)
                rc = buf_adds(out, " Reads `${NAME}`.", e);
            if (!rc)
                rc = buf_adds(out, " |\n", e);
        }
    }
    return rc;
}
