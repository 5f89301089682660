/* quire bench: how fast a model runs here. */
#include "pipeline/cmd.h"

#include "pipeline/bench.h"
#include "pipeline/machine.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUICK_SECONDS = 20, QUICK_DEPTH = 2048, QUICK_PREFIX = 512 };
enum { FULL_SECONDS = 90, FULL_DEPTH = 6000, FULL_PREFIX = 2000 };
enum { MOST_THREADS = 256, MOST_DEPTH = 1 << 20 };

/* "prefill,decode" as bits of enum bench_part. */
static int parse_parts(const char *list, unsigned *out, struct err *e)
{
    static const char *const names[] = {"load",      "prefill", "decode", "gemm",
                                        "attention", "codecs",  "spill"};
    *out = 0;
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ","), i = 0;
        while (i < ARRAY_LEN(names) && (strlen(names[i]) != n || memcmp(names[i], at, n) != 0))
            i++;
        if (i == ARRAY_LEN(names))
            return err_set(e, REACH_JOB, ERR_CONFIG,
                           "--what: unknown part \"%.*s\": load, prefill, decode, gemm, "
                           "attention, codecs, spill",
                           n < 40 ? (int)n : 40, at);
        *out |= 1u << i;
        at += n + (at[n] == ',');
    }
    return *out ? 0 : err_set(e, REACH_JOB, ERR_CONFIG, "--what names no part");
}

static int parse_number(const struct cmd_line *l, const char *option, int least, int most,
                        int *out, struct err *e)
{
    const char *text = cmd_value(l, option, 0);
    char *end;
    if (!text)
        return 0;
    long v = strtol(text, &end, 10);
    if (end == text || *end || v < least || v > most)
        return err_set(e, REACH_JOB, ERR_CONFIG, "%s: \"%.40s\" is not a number from %d to %d",
                       option, text, least, most);
    *out = (int)v;
    return 0;
}

static int parse_options(const struct cmd_line *l, struct bench_options *o, struct err *e)
{
    const char *what = cmd_value(l, "--what", 0), *table = cmd_value(l, "--kernels", 0);
    const struct opt *kernels = opt_find(model_opts, n_model_opts, "kernels");
    struct machine m;
    bool quick = cmd_value(l, "--quick", 0) != NULL;
    machine_read(&m, "");
    *o = (struct bench_options){
        .threads = m.cpus,
        .parts = BENCH_ALL,
        .depth = quick ? QUICK_DEPTH : FULL_DEPTH,
        .prefix = quick ? QUICK_PREFIX : FULL_PREFIX,
        .folder = cmd_value(l, "--folder", 0),
        .seconds = quick ? QUICK_SECONDS : FULL_SECONDS,
    };
    int rc = what ? parse_parts(what, &o->parts, e) : 0;
    if (!rc)
        rc = parse_number(l, "--threads", 1, MOST_THREADS, &o->threads, e);
    if (!rc)
        rc = parse_number(l, "--depth", 0, MOST_DEPTH, &o->depth, e);
    for (int i = 0; table && kernels->names[i]; i++)
        if (strcmp(kernels->names[i], table) == 0)
            o->kernels = i;
    if (!rc && table && strcmp(kernels->names[o->kernels], table) != 0)
        rc = err_set(
            e, REACH_JOB, ERR_CONFIG,
            "--kernels: unknown table \"%.40s\"; `quire help model.kernels` lists them", table);
    return rc;
}

int cmd_bench(const struct cmd_line *l)
{
    struct err e = {0};
    struct bench b = {0};
    struct bench_options o;
    struct buf out;
    if (parse_options(l, &o, &e))
        return cmd_fail(&e);
    if (!cmd_value(l, "--log-level", 0) && !cmd_value(l, "--verbose", 0) &&
        !cmd_value(l, "--quiet", 0))
        log_set_level(LOG_WARN); /* each load of the model has a line */
    o.file = mem_strdup(l->args[0]);
    buf_init(&out, CMD_TEXT);
    int rc = bench_run(&b, &o, &e);
    if (!rc)
        rc = (cmd_value(l, "--json", 0) ? bench_print_json : bench_print)(&b, &out, &e);
    bench_release(&b);
    free(o.file);
    return cmd_print(&out, rc, &e);
}
