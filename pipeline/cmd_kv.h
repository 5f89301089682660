/* pipeline/cmd_kv.h - what `quire kv` can do: one function in a cmd_kv_*.c file for each of its words. */
#ifndef QUIRE_PIPELINE_CMD_KV_H
#define QUIRE_PIPELINE_CMD_KV_H

#include "pipeline/cmd.h"
#include "stages/kv/disk_look.h"

/* args[0] of the line is the word itself; args[1] is there, and no option that the word does not take. */
int cmd_kv_trace(const struct cmd_line *l);
int cmd_kv_list(const struct cmd_line *l);
int cmd_kv_stats(const struct cmd_line *l);
int cmd_kv_verify(const struct cmd_line *l);
int cmd_kv_gc(const struct cmd_line *l);
int cmd_kv_pin(const struct cmd_line *l);
int cmd_kv_unpin(const struct cmd_line *l);

/* Open the folder that args[1] names. One that is no folder of KV pages is an error, and is not made one. */
int cmd_kv_open(const struct cmd_line *l, bool read_only, struct disk **d,
                struct err *e) MUST_CHECK;
/* Which records an option --context or --key, each a prefix in hexadecimal digits, picks. */
struct kv_choice {
    const char *context, *key; /* NULL: any */
};
int cmd_kv_choice(const struct cmd_line *l, struct kv_choice *c, struct err *e) MUST_CHECK;
bool cmd_kv_chosen(const struct kv_choice *c, const struct record_info *info);
void cmd_kv_age(int64_t seconds, char *out, size_t cap); /* "3 d", "12 min" */
void cmd_kv_bytes(uint64_t n, char *out, size_t cap);    /* "1.2 MiB" */

#endif
