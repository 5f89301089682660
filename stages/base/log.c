#include "stages/base/log.h"

#include "stages/base/clock.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 };

static const char *const names[] = {"error", "warn ", "info ", "debug", "trace"};
static atomic_int threshold = LOG_INFO;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*hook)(bool before);

void log_set_level(enum log_level level)
{
    atomic_store(&threshold, (int)level);
}

enum log_level log_get_level(void)
{
    return (enum log_level)atomic_load(&threshold);
}

void log_set_hook(void (*around)(bool before))
{
    pthread_mutex_lock(&lock);
    hook = around;
    pthread_mutex_unlock(&lock);
}

/* Copies s with control bytes as \xNN; returns the length, at most cap. */
static size_t escape(char *out, size_t cap, const char *s)
{
    size_t n = 0;
    for (; *s && n + 4 < cap; s++) {
        unsigned char c = (unsigned char)*s;
        if (c >= 0x20 && c != 0x7f)
            out[n++] = *s;
        else
            n += (size_t)snprintf(out + n, 5, "\\x%02x", c);
    }
    return n;
}

void log_line(enum log_level level, const char *where, const char *fmt, ...)
{
    if ((int)level > atomic_load(&threshold))
        return;
    char text[LINE_BYTES], line[LINE_BYTES + 64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    int head = snprintf(line, sizeof(line), "%9.3f %s %.40s: ", clock_since_start(),
                        names[level], where);
    size_t n = (size_t)head + escape(line + head, sizeof(line) - (size_t)head - 1, text);
    line[n++] = '\n';

    pthread_mutex_lock(&lock);
    if (hook)
        hook(true);
    ssize_t written = write(STDERR_FILENO, line, n);
    (void)written; /* a log that cannot be written must not stop the run */
    if (hook)
        hook(false);
    pthread_mutex_unlock(&lock);
}
