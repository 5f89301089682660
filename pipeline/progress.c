#include "pipeline/progress.h"

#include "stages/base/clock.h"
#include "stages/base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { REDRAW_US = 250000, PLAIN_US = 10000000, SETTLE_US = 3000000 };

/* ---- text ---- */

double progress_share(const struct progress_sample *s)
{
    if (s->bytes_planned <= 0)
        return -1;
    double read = (double)s->bytes_read / (double)s->bytes_planned;
    int64_t known = s->requests_made > s->chunks_made ? s->requests_made : s->chunks_made;
    /* Reading runs ahead of the model: of what was read, so much is answered. */
    double answered = known > 0 ? (double)s->requests_done / (double)known
                                : (s->found > 0 ? (double)s->done / (double)s->found : 0);
    read = read > 1 ? 1 : read;
    return answered > 1 ? read : read * answered;
}

static void add(char *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(char *out, const char *fmt, ...)
{
    size_t n = strlen(out);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(out + n, PROGRESS_LINE - n, fmt, ap);
    va_end(ap);
}

static void add_left(char *out, double seconds)
{
    if (seconds < 60)
        add(out, ", %.0f s left", seconds);
    else if (seconds < 5400)
        add(out, ", %.0f min left", seconds / 60);
    else if (seconds < 172800)
        add(out, ", %.1f h left", seconds / 3600);
    else
        add(out, ", %.1f days left", seconds / 86400);
}

void progress_text(const struct progress_sample *now, const struct progress_sample *then,
                   double share, int64_t since, int width, char out[PROGRESS_LINE])
{
    out[0] = '\0';
    /* What matters most comes first: a narrow terminal cuts the end. */
    if (share >= 0) {
        add(out, "%d %%", (int)(share * 100));
        if (share > 0.005 && share < 1 && now->us - since > SETTLE_US)
            add_left(out, (double)(now->us - since) / 1e6 * (1 - share) / share);
        add(out, " | ");
    }
    add(out, "%" PRId64 "/%" PRId64 " documents", now->done, now->found);
    if (now->failed)
        add(out, ", %" PRId64 " failed", now->failed);
    add(out, " | %" PRId64 "/%" PRId64 " requests", now->requests_done, now->requests_made);
    double seconds = (double)(now->us - then->us) / 1e6;
    if (seconds > 0)
        add(out, " | prefill %.0f, decode %.0f tok/s",
            (double)(now->prefill_tokens - then->prefill_tokens) / seconds,
            (double)(now->generated_tokens - then->generated_tokens) / seconds);
    if (width > 0 && (size_t)width < strlen(out))
        out[width] = '\0'; /* ASCII only */
}

/* ---- the line on the terminal ---- */

/* The log's hook has no context: the line that is on the screen now lives here. */
static pthread_mutex_t screen = PTHREAD_MUTEX_INITIALIZER;
static char shown[PROGRESS_LINE];

static void put(const char *s, size_t n)
{
    ssize_t written = write(STDERR_FILENO, s, n);
    (void)written;
}

static void draw(void)
{
    char line[PROGRESS_LINE + 8];
    int n = snprintf(line, sizeof(line), "\r%s\033[K", shown);
    put(line, (size_t)n);
}

static void around_log(bool before)
{
    if (before) {
        pthread_mutex_lock(&screen);
        put("\r\033[K", 4);
    } else {
        draw();
        pthread_mutex_unlock(&screen);
    }
}

static int terminal_width(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1
                                                                           : 79;
}

/* ---- life ---- */

static struct progress_sample sample(struct run_stats *s)
{
    return (struct progress_sample){
        .us = clock_us(),
        .found = atomic_load(&s->docs_found),
        .done = atomic_load(&s->docs_done),
        .failed = atomic_load(&s->docs_failed),
        .requests_made = atomic_load(&s->requests_made),
        .requests_done = atomic_load(&s->requests_done),
        .chunks_made = atomic_load(&s->chunks_made),
        .prefill_tokens = atomic_load(&s->prefill_tokens),
        .generated_tokens = atomic_load(&s->generated_tokens),
        .bytes_read = atomic_load(&s->bytes_read),
        .bytes_planned = atomic_load(&s->bytes_planned),
    };
}

void progress_start(struct progress *p, struct run_stats *stats, enum progress_mode mode)
{
    *p = (struct progress){.share = -1,
                           .stats = stats,
                           .enabled = mode != PROGRESS_NONE && log_get_level() >= LOG_INFO};
    p->terminal = mode == PROGRESS_BAR || (mode == PROGRESS_AUTO && isatty(STDERR_FILENO) == 1);
    p->started_us = p->drawn_us = clock_us();
    p->history[0] = sample(stats);
    p->n = p->at = 1;
    if (p->enabled && p->terminal) {
        shown[0] = '\0';
        log_set_hook(around_log);
    }
}

int progress_interval_ms(const struct progress *p)
{
    return p->enabled && p->terminal ? REDRAW_US / 1000 : 1000;
}

static void show(struct progress *p, bool whole_run)
{
    struct progress_sample now = sample(p->stats);
    int oldest = p->n < PROGRESS_HISTORY ? 0 : p->at;
    const struct progress_sample *then = &p->history[oldest];
    struct progress_sample start = {.us = p->started_us};
    char text[PROGRESS_LINE];
    /* More work comes into sight as documents are cut; the figure shown never goes back. */
    double share = progress_share(&now);
    if (share > p->share)
        p->share = share;
    progress_text(&now, whole_run ? &start : then, p->share, p->started_us,
                  p->terminal && !whole_run ? terminal_width() : 0, text);
    p->history[p->at] = now;
    p->at = (p->at + 1) % PROGRESS_HISTORY;
    p->n += p->n < PROGRESS_HISTORY;
    p->drawn_us = now.us;
    if (!p->terminal || whole_run) {
        log_info("run", "%s", text);
        return;
    }
    pthread_mutex_lock(&screen);
    memcpy(shown, text, sizeof(shown));
    draw();
    pthread_mutex_unlock(&screen);
}

void progress_tick(struct progress *p)
{
    int64_t every = p->terminal ? REDRAW_US : PLAIN_US;
    if (p->enabled && clock_us() - p->drawn_us >= every * 9 / 10)
        show(p, false);
}

void progress_end(struct progress *p)
{
    if (!p->enabled)
        return;
    if (p->terminal) {
        log_set_hook(NULL);
        put("\r\033[K", 4);
    }
    show(p, true);
}
