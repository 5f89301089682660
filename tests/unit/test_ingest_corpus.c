/* Runs ingest over the files of tests/unit/data/ingest and checks each line of EXPECT.tsv there. */
#include "tests/unit/ingest_try.h"

#define FOLDER "tests/unit/data/ingest/"

enum { MAX_ROWS = 256 };

struct row {
    char name[300]; /* the whole line: the name of the test */
    char file[100], fact[20], value[160];
};

static struct row rows[MAX_ROWS];

/* White space folded, as facts are written. */
static char *folded(const struct try *t)
{
    size_t cap = 1;
    for (size_t i = 0; i < t->n; i++)
        cap += t->docs[i]->text_len + 1;
    char *out = calloc(1, cap), *to = out;
    for (size_t i = 0; i < t->n; i++) {
        for (const char *p = t->docs[i]->text; p && *p; p++) {
            bool space = strchr(" \t\n\f", *p) != NULL;
            if (!space || (to > out && to[-1] != ' '))
                *to++ = space ? ' ' : *p;
        }
    }
    return out;
}

static void check_fact(const struct try *t, const struct row *r, const char *text)
{
    static const char *const states[] = {"ok", "partial", "failed"};
    bool found = false;
    if (strcmp(r->fact, "must") == 0) {
        found = strstr(text, r->value) != NULL;
    } else if (strcmp(r->fact, "mustnot") == 0) {
        found = strstr(text, r->value) == NULL;
    } else if (strcmp(r->fact, "members") == 0) {
        found = t->n == strtoul(r->value, NULL, 10);
    } else {
        found = t->n > 0 && strcmp(r->fact, "status") == 0;
        for (size_t i = 0; i < t->n; i++) {
            const struct doc *d = t->docs[i];
            if (strcmp(r->fact, "status") == 0)
                found &= strcmp(states[d->status], r->value) == 0;
            else if (strcmp(r->fact, "encoding") == 0)
                found |= d->encoding && strcmp(d->encoding, r->value) == 0;
            else if (strcmp(r->fact, "title") == 0)
                found |= d->title && strcmp(d->title, r->value) == 0;
            else if (strcmp(r->fact, "member") == 0)
                found |= d->chain && d->chain[0] && strcmp(d->chain[0], r->value) == 0;
            else if (strcmp(r->fact, "warning") == 0)
                found |= d->warnings && strstr(d->warnings[0], r->value);
            else if (strcmp(r->fact, "failed") ==
                     0) /* value: code, blank, part of the message */
                found |=
                    d->status == DOC_FAILED && strstr(d->fail.msg, strchr(r->value, ' ') + 1) &&
                    strncmp(r->value, err_code_name(d->fail.code), strcspn(r->value, " ")) == 0;
            else
                fail_msg("unknown fact %s", r->fact);
        }
    }
    if (!found)
        fail_msg("%s: %s not so: %s\ntext: %.300s", r->file, r->fact, r->value, text);
}

static void the_file_reads_as_expected(void **state)
{
    const struct row *r = *state;
    struct try *t = try_new();
    char path[200];
    snprintf(path, sizeof(path), FOLDER "%s", r->file);
    try_path(t, path);
    for (size_t i = 0; i < t->n; i++)
        if (t->docs[i]->text)
            try_check_blocks(t->docs[i]);
    char *text = folded(t);
    check_fact(t, r, text);
    free(text);
    try_free(t);
}

int main(void)
{
    static struct CMUnitTest tests[MAX_ROWS];
    size_t n = 0;
    FILE *f = fopen(FOLDER "EXPECT.tsv", "r");
    char line[300];
    while (f && n < MAX_ROWS && fgets(line, sizeof(line), f)) {
        struct row *r = &rows[n];
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%99[^\t#]\t%19[^\t]\t%159[^\n]", r->file, r->fact, r->value) != 3)
            continue;
        snprintf(r->name, sizeof(r->name), "%s %s %s", r->file, r->fact, r->value);
        tests[n++] = (struct CMUnitTest){r->name, the_file_reads_as_expected, NULL, NULL, r};
    }
    if (f)
        fclose(f);
    return n > 0 ? _cmocka_run_group_tests("ingest_corpus", tests, n, NULL, NULL) : 1;
}
