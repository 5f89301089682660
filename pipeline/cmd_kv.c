/* quire kv: a word, what it looks at, and its options. */
#include "pipeline/cmd_kv.h"

#include "stages/base/opt.h"

#include <string.h>

struct verb {
    const char *name;
    const char *options[8]; /* of those of cmd_table.c; NULL-terminated */
    int (*run)(const struct cmd_line *l);
};

static const struct verb verbs[] = {
    {"list", {"--json", "--context", "--key"}, cmd_kv_list},
    {"stats", {"--json"}, cmd_kv_stats},
    {"verify", {NULL}, cmd_kv_verify},
    {"gc", {"--older-than", "--limit", "--context", "--all", "--dry-run"}, cmd_kv_gc},
    {"pin", {"--context", "--key", "--all"}, cmd_kv_pin},
    {"unpin", {"--context", "--key", "--all"}, cmd_kv_unpin},
    {"trace", {"--json", "--last"}, cmd_kv_trace},
};

static bool takes(const struct verb *v, const struct cmd_option *o)
{
    for (size_t i = 0; i < n_cmd_common; i++)
        if (o == &cmd_common[i])
            return true;
    for (size_t i = 0; i < ARRAY_LEN(v->options) && v->options[i]; i++)
        if (strcmp(v->options[i], o->name) == 0)
            return true;
    return false;
}

int cmd_kv(const struct cmd_line *l)
{
    struct err e = {0};
    struct opt_guess guess = {.wanted = l->args[0]};
    const struct verb *v = NULL;
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (strcmp(verbs[i].name, l->args[0]) == 0)
            v = &verbs[i];
        opt_guess_add(&guess, verbs[i].name);
    }
    if (!v && guess.best)
        err_set(&e, REACH_JOB, ERR_CONFIG, "kv: unknown word \"%.60s\": did you mean \"%s\"?",
                l->args[0], guess.best);
    else if (!v)
        err_set(&e, REACH_JOB, ERR_CONFIG,
                "kv: unknown word \"%.60s\": \"quire kv --help\" lists them", l->args[0]);
    for (int i = 0; v && i < l->n_given; i++)
        if (!takes(v, l->given[i].option))
            err_set(&e, REACH_JOB, ERR_CONFIG, "kv %s takes no %s", v->name,
                    l->given[i].option->name);
    return e.code ? cmd_fail(&e) : v->run(l);
}
