/* quire tokenize: a text as the model sees it. */
#include "pipeline/cmd.h"

#include "pipeline/cmd_prompt.h"
#include "stages/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_CAP = 256 << 20, LINE_CAP = 64 << 10 };

static int read_all(const char *path, struct buf *text, struct err *e)
{
    if (strcmp(path, "-") != 0)
        return file_read(path, text, e);
    char block[64 * 1024];
    size_t n;
    while ((n = fread(block, 1, sizeof(block), stdin)) > 0)
        if (buf_add(text, block, n, e))
            return err_wrap(e, "standard input");
    return ferror(stdin) ? err_set(e, REACH_JOB, ERR_IO, "standard input: %s", strerror(errno))
                         : 0;
}

/* Printed piece by piece: the list of a large text does not fit into one buffer. */
static int print_tokens(const struct vocab *v, const struct token_list *t, bool ids_only,
                        struct err *e)
{
    struct buf line;
    buf_init(&line, LINE_CAP);
    int rc = 0;
    for (int i = 0; !rc && i < t->n; i++) {
        buf_clear(&line);
        rc = ids_only ? buf_addf(&line, e, "%d\n", (int)t->ids[i])
                      : cmd_print_token(v, t->ids[i], &line, e);
        if (!rc && fwrite(line.data, 1, line.len, stdout) != line.len)
            rc = err_set(e, REACH_JOB, ERR_IO, "cannot write to standard output: %s",
                         strerror(errno));
    }
    buf_release(&line);
    return rc;
}

static int open_vocab(const char *path, struct file_map *map, struct gguf *g, struct vocab **v,
                      struct err *e)
{
    if (file_map_open(map, path, e) || gguf_parse(g, map->data, map->len, e) ||
        vocab_open(v, g, e)) {
        if (e->code != ERR_IO)
            err_wrap(e, "%s", path);
        return -(int)e->code;
    }
    return 0;
}

int cmd_tokenize(const struct cmd_line *l)
{
    struct err e = {0};
    struct file_map map = {0};
    struct gguf g = {0};
    struct vocab *v = NULL;
    struct token_list t = {0};
    struct buf text, none;
    buf_init(&text, TEXT_CAP);
    buf_init(&none, 1);
    int rc = open_vocab(l->args[0], &map, &g, &v, &e);
    if (!rc)
        rc = read_all(l->n_args > 1 ? l->args[1] : "-", &text, &e);
    bool wrong_file = rc != 0; /* named on the command line: its fault */
    if (!rc)
        rc = vocab_encode(v, text.data ? text.data : "", text.len,
                          cmd_value(l, "--special", 0) ? VOCAB_SPECIAL : 0, &t, &e);
    if (!rc)
        rc = print_tokens(v, &t, cmd_value(l, "--ids", 0) != NULL, &e);
    token_list_release(&t);
    buf_release(&text);
    vocab_free(v);
    gguf_release(&g);
    file_map_close(&map);
    int status = cmd_print(&none, rc, &e);
    return wrong_file ? EXIT_USAGE : status;
}
