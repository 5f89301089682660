#include "stages/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[ERR_CODE_COUNT] = {
    [ERR_NONE] = "none",
    [ERR_NOMEM] = "out-of-memory",
    [ERR_IO] = "io",
    [ERR_FORMAT] = "format",
    [ERR_CORRUPT] = "corrupt",
    [ERR_UNSUPPORTED] = "unsupported",
    [ERR_ENCRYPTED] = "encrypted",
    [ERR_LIMIT] = "limit",
    [ERR_CONFIG] = "config",
    [ERR_DEVICE] = "device",
    [ERR_CANCELLED] = "cancelled",
    [ERR_BUG] = "bug",
};

int err_set(struct err *e, enum err_reach reach, enum err_code code, const char *fmt, ...)
{
    if (e->code != ERR_NONE)
        return -(int)e->code;
    e->code = code;
    e->reach = reach;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    return -(int)code;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    char inner[sizeof(e->msg)];
    memcpy(inner, e->msg, sizeof(inner));
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(e->msg))
        n = (int)sizeof(e->msg) - 1;
    /* A message that no longer fits loses its end: the outermost context names the file. */
    size_t room = sizeof(e->msg) - 1 - (size_t)n;
    size_t len = strlen(inner);
    if (room > 2) {
        memcpy(e->msg + n, ": ", 2);
        if (len > room - 2)
            len = room - 2;
        memcpy(e->msg + n + 2, inner, len);
        e->msg[(size_t)n + 2 + len] = '\0';
    }
    return -(int)e->code;
}

void err_clear(struct err *e)
{
    memset(e, 0, sizeof(*e));
}

const char *err_code_name(enum err_code code)
{
    return (unsigned)code < ERR_CODE_COUNT ? names[code] : "unknown";
}
