/* pipeline/job.h - a whole job: the config structs of all modules, filled from one file.
 *
 * What:   struct job, the list of sections (the only list of them), load, check, print.
 * Rules:  1. Sections are named and ordered like the stages.
 *         2. Errors have code CONFIG, reach JOB and begin with "file:line:column: ".
 *         3. job_print() writes a job file that loads to the same struct job.
 */
#ifndef QUIRE_PIPELINE_JOB_H
#define QUIRE_PIPELINE_JOB_H

#include "pipeline/limits_opts.h"
#include "stages/base/buf.h"
#include "stages/chunk/chunk_opts.h"
#include "stages/decode/decode_opts.h"
#include "stages/ingest/ingest_opts.h"
#include "stages/kv/kv_opts.h"
#include "stages/model/model_opts.h"
#include "stages/prefill/prefill_opts.h"
#include "stages/task.h"
#include "stages/write/write_opts.h"

struct job_file;

struct job {
    char *name; /* key `job` at the top level */
    char *path; /* of the job file, absolute; its folder is the base of relative paths */
    struct model_config model;
    struct ingest_config ingest;
    struct chunk_config chunk;
    struct prompt_config prompt;
    struct task_config task;
    struct prefill_config prefill;
    struct decode_config decode;
    struct kv_config kv;
    struct limits_config limits;
    struct write_config write;
    char *given;           /* path of the job file as it was given, for messages */
    struct job_file *file; /* where its keys are; NULL for defaults */
};

struct job_section {
    const char *name, *help;
    const struct opt *opts;
    const size_t *n_opts;
    size_t offset; /* of the config struct in struct job */
};

/* In the order of the file: model ingest chunk prompt task prefill decode kv limits write. */
extern const struct job_section job_sections[];
extern const size_t n_job_sections;

/* Every key at its default; keys without one are unset. job_release() frees it. */
int job_defaults(struct job *j, struct err *e) MUST_CHECK;

/* Parse text (len bytes) of a file named path. Pure but for getenv(), and getcwd() for a relative path. The
 * job is then complete: defaults filled, ranges and required keys checked, keys that exclude each other
 * refused. On failure *j is released. Returns 0, or -ERR_CONFIG with a message that names the place and, for a wrong name, the nearest. */
int job_parse(struct job *j, const char *text, size_t len, const char *path,
              struct err *e) MUST_CHECK;
/* Read a file and parse it. */
int job_load(struct job *j, const char *path, struct err *e) MUST_CHECK;
/* The same, after which n settings "section.key=value" (or "job=name") replace what the file says; a list may
 * be set item by item. Their relative paths are relative to the working directory. */
int job_load_with(struct job *j, const char *path, const char *const *settings, size_t n,
                  struct err *e) MUST_CHECK;
void job_release(struct job *j); /* safe on a zeroed struct */

/* Put the place in front of an error that begins with a key ("ingest.from: ..."), or the file's name alone. */
int job_locate(const struct job *j, struct err *e);

/* The fully resolved job as YAML; paths are absolute. */
int job_print(const struct job *j, struct buf *out, struct err *e) MUST_CHECK;

#endif
