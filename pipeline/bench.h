/* pipeline/bench.h - `quire bench`: how fast a model runs here, each figure beside what the machine allows.
 *
 * What:   rows of one kind each: a piece of work as a run does it, repeated for some seconds; its best and median
 *         time; and the time that it would take at the peaks measured in between (pipeline/peaks.h).
 * Not:    no run of a job: no documents, no scheduler. The text is the reference of the job file.
 * Rules:  1. Every row goes through the functions that a run calls: model_forward(), the kernels, the store, the codecs.
 *         2. The time is bounded: rows repeat until their share of it is over, at least once.
 * Thread: one at a time; uses the team of OpenMP.
 */
#ifndef QUIRE_PIPELINE_BENCH_H
#define QUIRE_PIPELINE_BENCH_H

#include "pipeline/peaks.h"
#include "stages/base/buf.h"
#include "stages/model/model.h"

enum bench_part {
    BENCH_LOAD = 1,
    BENCH_PREFILL = 2,
    BENCH_DECODE = 4,
    BENCH_GEMM = 8,
    BENCH_ATTENTION = 16,
    BENCH_CODECS = 32,
    BENCH_SPILL = 64,
    BENCH_ALL = 127
};

enum {
    BENCH_ROWS = 64,
    BENCH_SAMPLES = 200,
    BENCH_CHUNK = 512,     /* rows of a prefill pass, if the context allows */
    BENCH_SEQUENCES = 32,  /* most that decode side by side */
    BENCH_DECODE_AT = 128, /* where decode begins, and */
    BENCH_DECODE_DEEP = 2048,
    BENCH_FOLDER = 4096, /* bytes of a path */
    BENCH_STEPS = 8,     /* of decode, timed together */
};

/* What a piece of work cannot do without. */
struct bench_work {
    double bytes; /* read from memory */
    double ops;   /* multiply-adds of bytes, two each */
    double flops; /* and of floats */
};

struct bench_row {
    const char *part; /* "prefill" */
    char name[48];
    int tokens, depth, sequences; /* of the work; 0: do not apply */
    double amount;          /* of `unit` in one repeat; 0: the row is the time itself, in s */
    const char *unit;       /* "tokens/s" */
    struct bench_work work; /* all 0: no roof */
    double factor;          /* 0: none; else how many times smaller, or faster than computing */
    double seconds[BENCH_SAMPLES];
    int n;
};

struct bench_options {
    char *file;
    int kernels, threads; /* enum kernel_choice; > 0 */
    unsigned parts;       /* enum bench_part, or-ed */
    int depth;            /* of the deep prefill; 0: none */
    int prefix;           /* tokens that are spilled and restored */
    const char
        *folder;    /* where spilled pages go; NULL: the system's place for temporary files */
    double seconds; /* about how long all of it may take */
};

struct bench {
    struct bench_options o;
    struct kernels table;
    struct team *team;
    struct model *model;
    struct model_sizes sizes;
    struct page_pool *pool; /* n_pages */
    int n_pages;
    struct block_table *first; /* the first `chunk` tokens of text */
    struct bench_work token;   /* products of one token through all layers, without the head */
    struct bench_work head;
    struct token_list text; /* at least `context` tokens */
    int context, chunk;     /* tokens: of the longest sequence, of a prefill pass */
    float *logits;          /* [BENCH_SEQUENCES][n_vocab] */
    struct peaks peaks;
    double load[3]; /* of the system, when it began: getloadavg() */
    double row_seconds;
    struct bench_row *rows; /* [BENCH_ROWS] */
    int n_rows;
};

int bench_run(struct bench *b, const struct bench_options *o, struct err *e) MUST_CHECK;
void bench_release(struct bench *b);

/* Speeds of a row, in its unit; its time at the peaks over its best time, 0: no roof. */
double bench_best(const struct bench_row *r);
double bench_median(const struct bench_row *r);
double bench_share(const struct bench *b, const struct bench_row *r);

int bench_print(const struct bench *b, struct buf *out, struct err *e) MUST_CHECK;
int bench_print_json(const struct bench *b, struct buf *out, struct err *e) MUST_CHECK;

/* ---- for the parts ---- */

struct bench_row *bench_add(struct bench *b, const char *part, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
void bench_sample(struct bench_row *r, double seconds);

/* One repeat. */
typedef int bench_body_fn(void *ctx, struct err *e);
/* Repeat it for the time of a row; r may be NULL: once, untimed. */
int bench_repeat(struct bench *b, struct bench_row *r, bench_body_fn *body, void *ctx,
                 struct err *e) MUST_CHECK;

/* Values as they come out of norms: none is special, their sums are not large. The same at each call. */
void bench_fill(float *x, size_t n);

/* A sequence with room for n + more positions, of which the first n hold keys and values: copies of b->first. */
int bench_sequence(struct bench *b, int n, int more, struct block_table **out,
                   struct err *e) MUST_CHECK;
/* Bytes of keys and values that a token at this position reads, and its operations on them. */
struct bench_work bench_attention_of(const struct bench *b, int position);

/* A new folder below o.folder; its files out of the system's cache; and gone. It has no folders in it. */
int bench_folder_make(const struct bench *b, char out[BENCH_FOLDER], struct err *e) MUST_CHECK;
void bench_folder_cool(const char *folder);
void bench_folder_remove(const char *folder);

int bench_prefill(struct bench *b, struct err *e) MUST_CHECK;
int bench_decode(struct bench *b, struct err *e) MUST_CHECK;
int bench_gemm(struct bench *b, struct err *e) MUST_CHECK;
int bench_attention(struct bench *b, struct err *e) MUST_CHECK;
int bench_codecs(struct bench *b, struct err *e) MUST_CHECK;
int bench_spill(struct bench *b, struct err *e) MUST_CHECK;

#endif
