#include "stages/ingest/isolate.h"

#include "stages/base/clock.h"
#include "stages/base/le.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"
#include "stages/ingest/jail.h"
#include "stages/ingest/names.h"
#include "stages/ingest/wire.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    AHEAD = ISOLATE_AHEAD,
    SENT_BYTES =
        64 << 10,     /* of requests, which the socket holds, so that sending never waits */
    DEATHS = 8,       /* readers that one file may cost before the rest of it is given up */
    FALSE_STARTS = 2, /* readers that may end before they begin */
    KILL_MS = 100,    /* who kills readers may be about to stop the run, too */
    SLICE_MS = 100,   /* how long a wait lasts before the order to stop is looked at */
    GRACE_US =
        1000000 /* the reader keeps ingest.timeout itself; this comes on top, and a quarter */
};

/* A file that is sent, or to be sent. */
struct pending {
    uint64_t number;
    char *path, *source; /* source: its label */
    size_t name_at;
    int fd;
    char *why;
    size_t sent;    /* bytes of the request; 0: not sent */
    int64_t known;  /* documents that came */
    uint64_t bytes; /* counted as read */
    int deaths;
    struct blame blames[WIRE_BLAMES];
    int n_blames;
};

struct isolate {
    struct keeper *keeper;
    struct isolate_to to;
    struct wire_limits limits;
    int64_t patience_us;
    int fd; /* of the reader, -1: there is none */
    struct pending ring[AHEAD];
    int first, n;
    uint64_t numbers;
    /* of the wait for the next message */
    int64_t waited_us;
    unsigned turn;
    /* bytes that came and were not looked at */
    uint8_t piece[64 << 10];
    size_t at, len;
};

/* How a wait for bytes ends, beside an error. */
enum { CAME = 0, STOPPED = ISOLATE_STOPPED, ENDED = 2, HANGS = 3, NONSENSE = 4 };

static struct pending *head(struct isolate *x)
{
    return &x->ring[x->first];
}

/* ---- bytes ---- */

static bool is_cancelled(const struct isolate *x)
{
    return x->to.cancel && atomic_load_explicit(x->to.cancel, memory_order_relaxed);
}

/* Some bytes. The socket waits SLICE_MS at most, so that nothing is slept through. */
static int more(struct isolate *x, void *to, size_t cap, size_t *got)
{
    for (;;) {
        int64_t from = clock_us();
        ssize_t n = recv(x->fd, to, cap, 0);
        if (is_cancelled(x))
            return STOPPED;
        *got = n > 0 ? (size_t)n : 0;
        if (n > 0)
            return CAME;
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return ENDED;
        unsigned turn = board_turn(keeper_board(x->keeper));
        x->waited_us = turn == x->turn ? x->waited_us + clock_us() - from : 0;
        x->turn = turn;
        if (x->waited_us > x->patience_us)
            return HANGS;
    }
}

static int pull(struct isolate *x, void *to, size_t n)
{
    uint8_t *out = to;
    while (n > 0) {
        size_t take = x->len - x->at;
        if (take > 0) {
            take = take < n ? take : n;
            memcpy(out, x->piece + x->at, take);
            x->at += take;
        } else if (n >= sizeof(x->piece)) {
            int rc = more(x, out, n, &take);
            if (rc != CAME)
                return rc;
        } else {
            x->at = x->len = 0;
            int rc = more(x, x->piece, sizeof(x->piece), &x->len);
            if (rc != CAME)
                return rc;
        }
        out += take;
        n -= take;
    }
    return CAME;
}

/* ---- documents ---- */

/* Grows as the bytes come: what a header says costs nothing yet. */
static int pull_head(struct isolate *x, size_t n, struct doc *d, struct err *e)
{
    struct buf b;
    buf_init(&b, n ? n : 1);
    int rc = CAME;
    while (rc == CAME && b.len < n) {
        size_t step = n - b.len < 1 << 20 ? n - b.len : 1 << 20;
        char *room = buf_room(&b, step, e);
        rc = room ? pull(x, room, step) : NONSENSE;
        if (rc == CAME)
            b.len += step;
    }
    if (rc == CAME && wire_get_head(d, (const uint8_t *)(b.data ? b.data : ""), b.len, e) != 0)
        rc = NONSENSE;
    buf_release(&b);
    return rc;
}

static int pull_blocks(struct isolate *x, size_t n, struct doc *d, struct err *e)
{
    uint8_t bytes[128 * WIRE_BLOCK];
    d->blocks = mem_alloc(n * sizeof(*d->blocks));
    if (!d->blocks) {
        err_set(e, REACH_DOC, ERR_NOMEM, "no memory for %zu blocks", n);
        return NONSENSE;
    }
    while (d->n_blocks < n) {
        size_t step = n - d->n_blocks < 128 ? n - d->n_blocks : 128;
        int rc = pull(x, bytes, step * WIRE_BLOCK);
        if (rc != CAME)
            return rc;
        for (size_t i = 0; i < step; i++)
            wire_get_block(&d->blocks[d->n_blocks++], bytes + i * WIRE_BLOCK);
    }
    return CAME;
}

static int pull_doc(struct isolate *x, const struct wire_header *h, struct doc *d,
                    struct err *e)
{
    int rc = pull_head(x, (size_t)h->head_bytes, d, e);
    if (rc == CAME && (h->text_bytes > 0 || h->n_blocks > 0)) {
        d->text = mem_alloc((size_t)h->text_bytes + 1);
        if (!d->text) {
            err_set(e, REACH_DOC, ERR_NOMEM, "no memory for a text");
            return NONSENSE;
        }
        d->text_len = (size_t)h->text_bytes;
        rc = pull(x, d->text, d->text_len);
    }
    if (rc == CAME && h->n_blocks > 0)
        rc = pull_blocks(x, (size_t)h->n_blocks, d, e);
    return rc == CAME && wire_check_doc(d, e) != 0 ? NONSENSE : rc;
}

static void count_bytes(const struct isolate *x, struct pending *p, uint64_t bytes)
{
    if (x->to.bytes_read && bytes > p->bytes && bytes <= INT64_MAX)
        atomic_fetch_add(x->to.bytes_read, (long long)(bytes - p->bytes));
    if (bytes > p->bytes)
        p->bytes = bytes;
}

static void drop_head(struct isolate *x)
{
    struct pending *p = head(x);
    if (p->fd >= 0)
        close(p->fd);
    free(p->path);
    free(p->source);
    free(p->why);
    *p = (struct pending){.fd = -1};
    x->first = (x->first + 1) % AHEAD;
    x->n--;
}

/* One message. Emits the document, or ends the first file. *given: what emit returned. */
static int pull_message(struct isolate *x, int *given, struct err *e)
{
    uint8_t bytes[WIRE_HEADER];
    struct wire_header h;
    x->waited_us = 0;
    int rc = pull(x, bytes, sizeof(bytes));
    if (rc != CAME)
        return rc;
    if (wire_get_header(&h, bytes, &x->limits, e) != 0)
        return NONSENSE;
    struct pending *p = head(x);
    if (h.kind == WIRE_END) {
        count_bytes(x, p, h.bytes_read);
        drop_head(x);
        x->to.done(x->to.to);
        return CAME;
    }
    struct doc *d = doc_new();
    rc = pull_doc(x, &h, d, e);
    if (rc != CAME) {
        doc_unref(d);
        return rc;
    }
    d->source = mem_strdup(p->source);
    count_bytes(x, p, h.bytes_read);
    p->known++;
    *given = x->to.emit(x->to.to, d);
    return CAME;
}

/* ---- requests ---- */

/* Bytes, and a descriptor unless file < 0. A reader that has ended is noticed where its answers are read. */
static void send_bytes(int fd, const uint8_t *bytes, size_t n, int file)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {NULL, 0};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (file >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof(control);
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &file, sizeof(file));
    }
    while (n > 0) {
        iov = (struct iovec){(void *)(uintptr_t)bytes, n};
        ssize_t sent = sendmsg(fd, &m, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return;
        bytes += sent;
        n -= (size_t)sent;
        m.msg_control = NULL; /* it went with the first byte */
        m.msg_controllen = 0;
    }
}

/* Sends the request if the socket has room for it, beside `sent` bytes that may lie there. */
static int send_file(struct isolate *x, struct pending *p, size_t sent, struct err *e)
{
    struct wire_request q = {.file = p->number,
                             .known = (uint64_t)p->known,
                             .path = p->path,
                             .name_at = p->name_at,
                             .why = p->why,
                             .blames = p->blames,
                             .n_blames = p->n_blames};
    struct buf b;
    uint8_t size[4] = {0};
    buf_init(&b, WIRE_REQUEST_MAX);
    int rc = buf_add(&b, size, sizeof(size), e);
    if (!rc)
        rc = wire_put_request(&b, &q, e);
    if (!rc && (sent == 0 || sent + b.len <= SENT_BYTES)) {
        le32_put(b.data, (uint32_t)(b.len - sizeof(size)));
        if (p->fd >= 0)
            lseek(p->fd, 0, SEEK_SET); /* an earlier reader shared its position */
        send_bytes(x->fd, (const uint8_t *)b.data, b.len, p->fd);
        p->sent = b.len;
    }
    buf_release(&b);
    return rc;
}

static int send_ahead(struct isolate *x, struct err *e)
{
    if (x->fd < 0) {
        x->fd = keeper_start(x->keeper, e);
        if (x->fd < 0)
            return -(int)e->code;
        struct timeval slice = {0, SLICE_MS * 1000};
        setsockopt(x->fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof(slice));
        x->at = x->len = 0;
        x->turn = board_turn(keeper_board(x->keeper));
        for (int i = 0; i < AHEAD; i++)
            x->ring[i].sent = 0;
    }
    size_t sent = 0;
    int rc = 0;
    for (int i = 0; rc == 0 && i < x->n; i++) {
        struct pending *p = &x->ring[(x->first + i) % AHEAD];
        if (!p->sent)
            rc = send_file(x, p, sent, e);
        if (!p->sent)
            break;
        sent += p->sent;
    }
    return rc;
}

/* ---- deaths ---- */

static void why_ended(const struct isolate *x, int how, int status, const struct err *nonsense,
                      struct err *why)
{
    double seconds = x->to.cfg->timeout;
    char said[160];
    board_said(keeper_board(x->keeper), said, sizeof(said));
    if (how == HANGS)
        err_set(why, REACH_DOC, ERR_LIMIT,
                "not read after %g s (ingest.timeout); its reader was stopped", seconds);
    else if (how == NONSENSE)
        err_set(why, REACH_DOC, nonsense->code, "%s", nonsense->msg);
    else
        jail_verdict(status, seconds, said, why);
}

static int cannot_confine(const struct isolate *x, struct err *e)
{
    char said[160];
    board_said(keeper_board(x->keeper), said, sizeof(said));
    return err_set(e, REACH_JOB, ERR_IO,
                   "a process that reads documents cannot be confined (ingest.isolation): %s",
                   said);
}

/* The reader has ended, or must. Whose fault was it? */
static int bury(struct isolate *x, int how, const struct err *nonsense, struct err *e)
{
    int status;
    close(x->fd);
    x->fd = -1;
    int rc = keeper_end(x->keeper, &status, e);
    if (rc)
        return rc;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && how == ENDED)
        poll(NULL, 0, KILL_MS);
    if (is_cancelled(x))
        return STOPPED;
    struct pending *p = head(x);
    struct blame b = {0};
    uint64_t file;
    bool known = board_read(keeper_board(x->keeper), &file, &b.spot) && file == p->number;
    why_ended(x, how, status, nonsense, &b.why);
    if (WIFEXITED(status) && WEXITSTATUS(status) == JAIL_REFUSED)
        return cannot_confine(x, e);
    p->deaths++;
    /* What this side had no memory for may come whole the next time; the reader is perhaps further on. */
    bool blameless = !known || (how == NONSENSE && nonsense->code == ERR_NOMEM);
    if (blameless && p->deaths <= FALSE_STARTS)
        return 0;
    if (!known || p->n_blames >= DEATHS || p->deaths > DEATHS) {
        b.spot = (struct spot){0};
        err_wrap(&b.why, "given up after %d readers", p->deaths);
        /* Even the failure itself could not be told. */
        if (p->deaths > DEATHS + 1)
            return err_set(e, REACH_JOB, ERR_IO, "%s: %s", p->source, b.why.msg);
    }
    log_debug("ingest", "a reader ended: source=%s entries=%d reason=\"%s\"", p->source,
              b.spot.n, b.why.msg);
    p->blames[p->n_blames++] = b;
    return 0;
}

/* ---- files ---- */

/* One message more, or a new reader. */
static int step(struct isolate *x, struct err *e)
{
    struct err nonsense = {0};
    if (is_cancelled(x))
        return STOPPED;
    int given = 0, rc = send_ahead(x, e);
    if (rc)
        return rc;
    int how = pull_message(x, &given, &nonsense);
    if (how == CAME)
        return given;
    return how == STOPPED ? STOPPED : bury(x, how, &nonsense, e);
}

struct isolate *isolate_new(struct keeper *k, const struct isolate_to *to)
{
    struct isolate *x = mem_need(sizeof(*x));
    x->keeper = k;
    x->to = *to;
    x->limits = wire_limits(to->cfg->max_document);
    x->patience_us = (int64_t)(to->cfg->timeout * 1.25e6) + GRACE_US;
    x->fd = -1;
    for (int i = 0; i < AHEAD; i++)
        x->ring[i].fd = -1;
    return x;
}

void isolate_free(struct isolate *x)
{
    struct err e = {0};
    int status;
    while (x->n > 0)
        drop_head(x);
    if (x->fd >= 0) {
        close(x->fd);
        if (keeper_end(x->keeper, &status, &e) != 0)
            log_warn("ingest", "%s", e.msg);
    }
    free(x);
}

int isolate_file(struct isolate *x, const struct walk_file *f, int fd, const char *why,
                 int64_t known, struct err *e)
{
    int rc = 0;
    while (rc == 0 && x->n == AHEAD)
        rc = step(x, e);
    if (rc) {
        if (fd >= 0)
            close(fd);
        return rc;
    }
    struct pending *p = &x->ring[(x->first + x->n++) % AHEAD];
    *p = (struct pending){.number = ++x->numbers,
                          .path = mem_strdup(f->path),
                          .source = label_new(f->path, strlen(f->path), NULL),
                          .name_at = (size_t)(f->name - f->path),
                          .fd = fd,
                          .why = fd < 0 ? mem_strdup(why) : NULL,
                          .known = known};
    return is_cancelled(x) ? STOPPED : send_ahead(x, e);
}

int isolate_finish(struct isolate *x, struct err *e)
{
    int rc = 0;
    while (rc == 0 && x->n > 0)
        rc = step(x, e);
    return rc;
}
