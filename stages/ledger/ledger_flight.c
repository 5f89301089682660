/* Answers of earlier runs and answers being written: a table in memory, which the compute thread may ask and add to
 * without waiting for a disk. Keys are digests, so their first bytes are as good as any hash. */
#include "stages/base/mem.h"
#include "stages/ledger/ledger_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 256, MAX_TOKENS = 1 << 24 };

static size_t slot_of(const struct flights *f, const uint8_t key[HASH_BYTES])
{
    size_t h;
    memcpy(&h, key, sizeof(h));
    return h & (f->n_slots - 1);
}

static struct ledger_flight *find(const struct flights *f, const uint8_t key[HASH_BYTES])
{
    struct ledger_flight *x = f->n_slots ? f->slots[slot_of(f, key)] : NULL;
    while (x && memcmp(x->key, key, HASH_BYTES) != 0)
        x = x->next;
    return x;
}

static void grow(struct flights *f)
{
    struct flights bigger = {.n_slots = f->n_slots ? f->n_slots * 2 : FIRST_SLOTS, .n = f->n};
    bigger.slots = mem_need(bigger.n_slots * sizeof(struct ledger_flight *));
    for (size_t i = 0; i < f->n_slots; i++)
        for (struct ledger_flight *x = f->slots[i], *next; x; x = next) {
            struct ledger_flight **to = &bigger.slots[slot_of(&bigger, x->key)];
            next = x->next;
            x->next = *to;
            *to = x;
        }
    free(f->slots);
    *f = bigger;
}

static struct ledger_flight *add(struct flights *f, const uint8_t key[HASH_BYTES],
                                 const char *doc)
{
    if (f->n >= f->n_slots)
        grow(f);
    struct ledger_flight *x = mem_need(sizeof(*x)), **to = &f->slots[slot_of(f, key)];
    memcpy(x->key, key, HASH_BYTES);
    snprintf(x->doc, sizeof(x->doc), "%s", doc);
    x->next = *to;
    *to = x;
    f->n++;
    return x;
}

static void flight_free(struct ledger_flight *x)
{
    free(x->answer.text);
    free(x->tokens);
    free(x);
}

static void drop(struct flights *f, struct ledger_flight *x)
{
    struct ledger_flight **at = &f->slots[slot_of(f, x->key)];
    while (*at != x)
        at = &(*at)->next;
    *at = x->next;
    f->n--;
    flight_free(x);
}

void flights_free(struct flights *f)
{
    for (size_t i = 0; i < f->n_slots; i++)
        for (struct ledger_flight *x = f->slots[i], *next; x; x = next) {
            next = x->next;
            flight_free(x);
        }
    free(f->slots);
    *f = (struct flights){0};
}

/* ---- at the start ---- */

static void *copy(const void *data, size_t n)
{
    char *p = mem_alloc(n + 1);
    if (p && n)
        memcpy(p, data, n);
    return p;
}

static int load_answers(struct ledger *l, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_ANSWER_ALL, e);
    int rc = s ? 1 : -(int)e->code;
    while (rc > 0 && (rc = db_step(&l->db, s, e)) == 1) {
        const void *key = sqlite3_column_blob(s, 0), *text = sqlite3_column_blob(s, 2);
        const char *doc = (const char *)sqlite3_column_text(s, 1);
        size_t len = (size_t)sqlite3_column_bytes(s, 2);
        if (!key || sqlite3_column_bytes(s, 0) != HASH_BYTES || find(&l->flights, key))
            continue;
        struct ledger_answer a = {.text = copy(text, len),
                                  .len = len,
                                  .n_tokens = sqlite3_column_int(s, 3),
                                  .n_thinking = sqlite3_column_int(s, 4),
                                  .stopped_by = sqlite3_column_int(s, 5),
                                  .flags = (unsigned)sqlite3_column_int64(s, 6)};
        if (!a.text || !doc || sum_answer(key, doc, &a) != sqlite3_column_int64(s, 7)) {
            free(a.text); /* it is computed again */
            continue;
        }
        struct ledger_flight *x = add(&l->flights, key, doc);
        x->answered = true;
        x->answer = a;
    }
    return rc;
}

static int load_tokens(struct ledger *l, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_FLIGHT_ALL, e);
    int rc = s ? 1 : -(int)e->code;
    while (rc > 0 && (rc = db_step(&l->db, s, e)) == 1) {
        const void *key = sqlite3_column_blob(s, 0), *tokens = sqlite3_column_blob(s, 2);
        const char *doc = (const char *)sqlite3_column_text(s, 1);
        size_t bytes = (size_t)sqlite3_column_bytes(s, 2), n = bytes / sizeof(int32_t);
        if (!key || sqlite3_column_bytes(s, 0) != HASH_BYTES || find(&l->flights, key) ||
            n == 0 || n > MAX_TOKENS || bytes % sizeof(int32_t) ||
            sum_flight(key, tokens, bytes) != sqlite3_column_int64(s, 3))
            continue;
        struct ledger_flight *x = add(&l->flights, key, doc ? doc : "");
        x->tokens = copy(tokens, bytes);
        x->n = x->cap = x->stored = (int)n;
        if (!x->tokens)
            drop(&l->flights, x);
    }
    return rc;
}

int flights_load(struct ledger *l, struct err *e)
{
    int rc = load_answers(l, e);
    return rc ? rc : load_tokens(l, e);
}

/* ---- for the stages ---- */

bool ledger_take_answer(struct ledger *l, const uint8_t key[HASH_BYTES],
                        struct ledger_answer *out)
{
    pthread_mutex_lock(&l->lock);
    struct ledger_flight *x = find(&l->flights, key);
    bool yes = x && x->answered;
    if (yes) {
        *out = x->answer;
        x->answer = (struct ledger_answer){0};
        drop(&l->flights, x);
    }
    pthread_mutex_unlock(&l->lock);
    return yes;
}

int32_t *ledger_tokens(struct ledger *l, const uint8_t key[HASH_BYTES], int *n)
{
    int32_t *tokens = NULL;
    pthread_mutex_lock(&l->lock);
    const struct ledger_flight *x = find(&l->flights, key);
    if (x && !x->answered && !x->open && x->n > 0 &&
        (tokens = copy(x->tokens, (size_t)x->n * sizeof(*tokens))))
        *n = x->n;
    pthread_mutex_unlock(&l->lock);
    return tokens;
}

struct ledger_flight *ledger_flight(struct ledger *l, const uint8_t key[HASH_BYTES],
                                    const char *doc, const int32_t *tokens, int n)
{
    pthread_mutex_lock(&l->lock);
    struct ledger_flight *x = find(&l->flights, key);
    if (x && (x->open || x->answered)) {
        x = NULL;
    } else {
        int32_t *own = copy(tokens, (size_t)n * sizeof(*own));
        if (own && !x)
            x = add(&l->flights, key, doc);
        if (own) {
            free(x->tokens);
            x->stored =
                n == x->stored ? n : 0; /* what is stored is what an earlier run had, or less */
            x->tokens = own;
            x->n = x->cap = n;
            x->open = true;
        } else {
            x = NULL;
        }
    }
    pthread_mutex_unlock(&l->lock);
    return x;
}

void ledger_token(struct ledger *l, struct ledger_flight *f, int32_t token)
{
    if (!f)
        return;
    pthread_mutex_lock(&l->lock);
    if (f->n == f->cap && !f->lost) {
        int cap = f->cap + f->cap / 2 + 32;
        int32_t *more = mem_resize(f->tokens, (size_t)cap * sizeof(*more));
        f->lost = !more;
        if (more) {
            f->tokens = more;
            f->cap = cap;
        }
    }
    if (!f->lost)
        f->tokens[f->n++] = token;
    pthread_mutex_unlock(&l->lock);
}

void ledger_land(struct ledger *l, struct ledger_flight *f, enum ledger_landing how,
                 const struct ledger_answer *a)
{
    if (!f)
        return;
    struct op *op =
        how == LEDGER_STOPPED ? NULL : op_new(how == LEDGER_ANSWERED ? OP_ANSWER : OP_FORGET);
    if (op) {
        memcpy(op->key, f->key, HASH_BYTES);
        memcpy(op->doc.id, f->doc, LEDGER_ID);
    }
    if (how == LEDGER_ANSWERED) {
        op->answer = *a;
        op->answer.text = copy(a->text, a->len);
        if (!op->answer.text) {
            op->kind = OP_FORGET; /* the next run computes it again */
            op->answer = (struct ledger_answer){0};
        }
    }
    pthread_mutex_lock(&l->lock);
    f->open = false;
    if (op)
        drop(&l->flights, f);
    pthread_mutex_unlock(&l->lock);
    if (op)
        ledger_queue(l, op);
}

/* ---- for the ledger's thread ---- */

/* A flight whose new tokens are to be written, copied out, so that nobody waits while they are. */
struct gain {
    uint8_t key[HASH_BYTES];
    char doc[LEDGER_ID];
    int32_t *tokens;
    int n;
};

static struct gain *take_gains(struct ledger *l, size_t *n)
{
    *n = 0;
    struct gain *all = mem_alloc((l->flights.n ? l->flights.n : 1) * sizeof(*all));
    for (size_t i = 0; all && i < l->flights.n_slots; i++)
        for (struct ledger_flight *x = l->flights.slots[i]; x; x = x->next) {
            struct gain *g = &all[*n];
            if (x->answered || x->n == x->stored ||
                !(g->tokens = copy(x->tokens, (size_t)x->n * sizeof(int32_t))))
                continue;
            memcpy(g->key, x->key, HASH_BYTES);
            memcpy(g->doc, x->doc, LEDGER_ID);
            g->n = x->stored = x->n;
            (*n)++;
        }
    return all;
}

static int store_gain(struct ledger *l, const struct gain *g, struct err *e)
{
    sqlite3_stmt *s = db_sql(&l->db, SQL_FLIGHT_SET, e);
    if (!s)
        return -(int)e->code;
    size_t bytes = (size_t)g->n * sizeof(int32_t);
    db_bind_blob(s, 1, g->key, HASH_BYTES);
    db_bind_text(s, 2, g->doc);
    db_bind_blob(s, 3, g->tokens, bytes);
    sqlite3_bind_int64(s, 4, sum_flight(g->key, g->tokens, bytes));
    return db_step(&l->db, s, e);
}

int flights_store(struct ledger *l, struct err *e)
{
    size_t n;
    pthread_mutex_lock(&l->lock);
    struct gain *gains = take_gains(l, &n);
    pthread_mutex_unlock(&l->lock);
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        if (!rc)
            rc = store_gain(l, &gains[i], e);
        free(gains[i].tokens);
    }
    free(gains);
    return rc;
}
