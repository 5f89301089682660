#include "stages/ingest/read_worker.h"

#include "stages/base/le.h"
#include "stages/base/utf8.h"
#include "stages/ingest/jail.h"
#include "stages/ingest/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BLOCKS_AT_ONCE = 512 };

struct worker {
    int fd;
    struct board *board;
    atomic_llong bytes_read;
    struct buf head; /* of the message being sent */
};

/* ---- out ---- */

/* The run is gone, or has had enough of this reader: no failure. */
static bool is_gone(int why)
{
    return why == EPIPE || why == ECONNRESET;
}

static int lost(const struct worker *w, int why)
{
    board_say(w->board, strerror(why));
    return is_gone(why) ? JAIL_DONE : JAIL_LOST;
}

static void send_all(const struct worker *w, struct iovec *iov, int n)
{
    while (n > 0) {
        ssize_t sent = writev(w->fd, iov, n);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            _exit(lost(w, sent < 0 ? errno : EPIPE));
        while (n > 0 && (size_t)sent >= iov->iov_len) {
            sent -= (ssize_t)iov->iov_len;
            iov++;
            n--;
        }
        if (n > 0) {
            iov->iov_base = (char *)iov->iov_base + sent;
            iov->iov_len -= (size_t)sent;
        }
    }
}

static void send_header(struct worker *w, enum wire_kind kind, const struct doc *d)
{
    uint8_t bytes[WIRE_HEADER];
    struct wire_header h = {.kind = kind, .bytes_read = (uint64_t)w->bytes_read};
    if (d) {
        h.head_bytes = w->head.len;
        h.text_bytes = d->text_len;
        h.n_blocks = d->n_blocks;
    }
    wire_put_header(bytes, &h);
    struct iovec iov[3] = {{bytes, sizeof(bytes)},
                           {w->head.data, (size_t)h.head_bytes},
                           {d ? d->text : NULL, (size_t)h.text_bytes}};
    uint8_t blocks[BLOCKS_AT_ONCE * WIRE_BLOCK];
    send_all(w, iov, 3);
    for (size_t i = 0; i < h.n_blocks;) {
        size_t n = 0;
        for (; n < BLOCKS_AT_ONCE && i < h.n_blocks; n++, i++)
            wire_put_block(blocks + n * WIRE_BLOCK, &d->blocks[i]);
        send_all(w, &(struct iovec){blocks, n * WIRE_BLOCK}, 1);
    }
}

/* reader_emit_fn */
static int send_doc(void *to, struct doc *d)
{
    struct worker *w = to;
    struct err e = {0};
    if (d->fail.code == ERR_NOMEM && !strstr(d->fail.msg, "ingest.memory")) {
        err_wrap(&d->fail, "needs more memory than ingest.memory allows");
        d->fail.msg[utf8_valid_prefix(d->fail.msg, strlen(d->fail.msg))] = '\0';
    }
    buf_clear(&w->head);
    if (wire_put_head(&w->head, d, &e) != 0)
        _exit(JAIL_NO_MEMORY);
    send_header(w, WIRE_DOC, d);
    doc_unref(d);
    return 0;
}

/* ---- in ---- */

/* Exactly n bytes; the descriptor that came with them in *file unless file is NULL. Returns 1, 0 when there
 * are no more, or -1 with errno. */
static int receive_bytes(int fd, void *to, size_t n, int *file)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    for (size_t at = 0; at < n;) {
        struct iovec iov = {(char *)to + at, n - at};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        if (file) {
            m.msg_control = &control;
            m.msg_controllen = sizeof(control);
        }
        ssize_t got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -1 : 0;
        struct cmsghdr *c = file ? CMSG_FIRSTHDR(&m) : NULL;
        if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            memcpy(file, CMSG_DATA(c), sizeof(int));
        at += (size_t)got;
    }
    return 1;
}

/* The next request, with its descriptor or -1; as receive_bytes(). */
static int receive(int fd, uint8_t *bytes, size_t cap, size_t *n, int *file)
{
    uint8_t size[4] = {0};
    *file = -1;
    int rc = receive_bytes(fd, size, sizeof(size), file);
    *n = le32_get(size);
    if (rc == 1 && *n <= cap)
        return receive_bytes(fd, bytes, *n, NULL);
    return rc == 1 ? 0 : rc;
}

static int serve(struct worker *w, struct reader *r, struct errand *errand, read_file_fn *read,
                 const uint8_t *bytes, size_t n, int file)
{
    struct err e = {0};
    struct blame blames[WIRE_BLAMES];
    struct wire_request q;
    if (wire_get_request(&q, blames, bytes, n, &e) != 0) {
        board_say(w->board, e.msg);
        return e.code == ERR_NOMEM ? JAIL_NO_MEMORY : JAIL_LOST;
    }
    errand->file = q.file;
    errand->known = (int64_t)q.known;
    errand->blames = blames;
    errand->n_blames = q.n_blames;
    struct walk_file f = {.path = q.path, .name = q.path + q.name_at};
    atomic_store(&w->bytes_read, 0);
    int rc = read(r, &f, q.why ? -1 : file, q.why);
    if (rc == 0)
        send_header(w, WIRE_END, NULL);
    return rc == 0 ? JAIL_DONE : JAIL_LOST;
}

int read_worker(int fd, struct board *board, const struct ingest_config *cfg,
                const struct spool *spool, read_file_fn *read)
{
    struct worker w = {.fd = fd, .board = board};
    struct errand errand = {.board = board, .cpu_seconds = cfg->timeout};
    struct reader r = {.cfg = cfg,
                       .bytes_read = &w.bytes_read,
                       .emit = send_doc,
                       .to = &w,
                       .errand = &errand,
                       .spool = *spool};
    static uint8_t bytes[WIRE_REQUEST_MAX];
    size_t n;
    int file, got, rc = JAIL_DONE;
    buf_init(&w.head, SIZE_MAX);
    while (rc == JAIL_DONE && (got = receive(fd, bytes, sizeof(bytes), &n, &file)) != 0)
        rc = got < 0 ? lost(&w, errno) : serve(&w, &r, &errand, read, bytes, n, file);
    buf_release(&w.head);
    return rc;
}
