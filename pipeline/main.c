/* The quire program: picks the command. */
#include "pipeline/cmd.h"

#include "stages/base/clock.h"
#include "stages/base/lib_memory.h"
#include "stages/base/log.h"
#include "stages/base/opt.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int unknown_command(const char *word)
{
    struct opt_guess guess = {.wanted = word};
    for (size_t i = 0; i < n_cmds; i++)
        opt_guess_add(&guess, cmds[i].name);
    if (guess.best)
        fprintf(stderr, "quire: unknown command \"%.60s\": did you mean \"%s\"?\n", word,
                guess.best);
    else
        fprintf(stderr, "quire: unknown command \"%.60s\": \"quire help\" lists them\n", word);
    return EXIT_USAGE;
}

static void set_log_level(const struct cmd_line *l)
{
    static const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    const char *level = cmd_value(l, "--log-level", 0);
    if (cmd_value(l, "--quiet", 0))
        log_set_level(LOG_ERROR);
    if (cmd_value(l, "--verbose", 0))
        log_set_level(LOG_DEBUG);
    for (size_t i = 0; level && i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], level) == 0)
            log_set_level((enum log_level)i);
}

/* The OpenMP runtime reads its environment before main(), and by default its idle threads spin for
 * milliseconds: one busy neighbour then costs nearly all of the speed (SmolLM2, 2 cores, decode alone:
 * 150 tokens/s, 4 with a neighbour). With a short spin it is 120 and 50; asleep at once it is 50 and
 * less. So start once more with the setting, unless the user has made one. */
static void let_idle_threads_sleep(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME"))
        return;
    if (setenv("GOMP_SPINCOUNT", "1000", 1) == 0)
        execv("/proc/self/exe", argv); /* where that is not possible, run as it is */
}

int main(int argc, char **argv)
{
    let_idle_threads_sleep(argv);
    lib_memory_init();
    signal(SIGXFSZ, SIG_IGN); /* a file at its limit: write(2) says so */
    struct err e = {0};
    struct cmd_line l;
    struct buf text;
    buf_init(&text, CMD_TEXT);
    clock_since_start();
    if (argc < 2) {
        if (cmd_overview(&text, &e) == 0)
            fputs(text.data, stderr);
        buf_release(&text);
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    if (strcmp(word, "--version") == 0)
        word = "version";
    const struct cmd *cmd = cmd_find(word);
    if (!cmd)
        return unknown_command(word);
    if (cmd_parse(&l, cmd, argc - 2, argv + 2, &e))
        return cmd_fail(&e);
    if (cmd_value(&l, "--help", 0)) {
        int rc = cmd_usage(cmd, &text, &e);
        return cmd_print(&text, rc, &e);
    }
    set_log_level(&l);
    return cmd->run(&l);
}
