#include "stages/ingest/charset.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"

#include <errno.h>
#include <iconv.h>
#include <string.h>
#include <uchardet/uchardet.h>

enum {
    DETECT_BYTES = 256 << 10, /* enough for statistics, and 20 ms */
    DECODE_STEP = 64 << 10,
    NUL_SAMPLE = 4096,
};

static const struct charset *named(const char *name)
{
    return charset_find(name, strlen(name));
}

/* ---- marks ---- */

static const struct {
    const char *bytes;
    size_t len;
    const char *name;
} marks[] = {
    {"\xef\xbb\xbf", 3, "UTF-8"},
    {"\xff\xfe\0\0", 4, "UTF-32LE"}, /* before UTF-16LE, which begins the same */
    {"\0\0\xfe\xff", 4, "UTF-32BE"},
    {"\xff\xfe", 2, "UTF-16LE"},
    {"\xfe\xff", 2, "UTF-16BE"},
};

static const struct charset *by_mark(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (n >= marks[i].len && memcmp(p, marks[i].bytes, marks[i].len) == 0)
            return named(marks[i].name);
    return NULL;
}

/* Text in the Latin script is every other byte NUL in UTF-16, on one side only. */
static const struct charset *by_nuls(const unsigned char *p, size_t n)
{
    size_t sample = n < NUL_SAMPLE ? n : NUL_SAMPLE, nul[2] = {0, 0};
    if (sample < 4)
        return NULL;
    for (size_t i = 0; i < sample; i++)
        nul[i & 1] += p[i] == 0;
    size_t half = sample / 2;
    if (nul[1] > half / 2 && nul[0] < half / 16 + 1)
        return named("UTF-16LE");
    if (nul[0] > half / 2 && nul[1] < half / 16 + 1)
        return named("UTF-16BE");
    return NULL;
}

/* ---- the decision ---- */

const struct charset *charset_detect(const unsigned char *p, size_t n)
{
    /* ASCII at the front says nothing: begin shortly before the first byte that does. */
    size_t from = 0;
    while (from < n && p[from] < 0x80 && p[from] != 0x1b)
        from++;
    from = from > 256 ? from - 256 : 0;
    if (n - from > DETECT_BYTES)
        n = from + DETECT_BYTES;
    uchardet_t u = uchardet_new();
    const struct charset *found;
    /* It fails for nothing else. */
    if (!u || uchardet_handle_data(u, (const char *)p + from, n - from) != 0)
        mem_none("the detection of a character encoding");
    uchardet_data_end(u);
    const char *label = uchardet_get_charset(u);
    found = charset_find(label, strlen(label));
    /* The whole is not UTF-8 (that was tried), so the detector means a part of it. */
    if (found && !found->iconv)
        found = NULL;
    uchardet_delete(u);
    return found;
}

/* Bytes that pass for UTF-8 with a few scratches: most of the sequences beyond ASCII are good. */
static bool mostly_utf8(const unsigned char *p, size_t n)
{
    size_t good = 0, bad = 0;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = p[i] < 0x80 ? 1 : utf8_decode((const char *)p + i, n - i, &cp);
        good += len > 1;
        bad += len < 0;
        i += (size_t)(len < 0 ? -len : len);
    }
    return good >= bad;
}

const struct charset *charset_choose(const unsigned char *p, size_t n,
                                     const struct charset *option,
                                     const struct charset *declared, enum charset_by *by)
{
    const struct charset *c = by_mark(p, n);
    *by = BY_MARK;
    if (c)
        return c;
    *by = BY_OPTION;
    if (option)
        return option;
    *by = BY_DECLARATION;
    /* A label that could be read cannot say truly that its characters are two bytes wide. */
    if (declared && declared->unit == 1 && (declared->iconv || mostly_utf8(p, n)))
        return declared;
    *by = BY_VALIDITY;
    const struct charset *wide = by_nuls(p, n);
    if (!wide && utf8_valid_prefix((const char *)p, n) == n)
        return named("UTF-8");
    *by = BY_NULS;
    if (wide)
        return wide;
    *by = BY_DETECTOR;
    c = charset_detect(p, n);
    if (c)
        return c;
    /* No idea. Scratched UTF-8 keeps its good parts; the rest is read as the web reads it. */
    *by = BY_DEFAULT;
    return mostly_utf8(p, n) ? named("UTF-8") : named("windows-1252");
}

size_t charset_peek(const unsigned char *p, size_t n, char *out, size_t cap)
{
    const struct charset *c = by_mark(p, n);
    if (!c)
        c = by_nuls(p, n);
    size_t unit = c ? (size_t)c->unit : 1;
    size_t at = c && c->iconv && strstr(c->name, "BE") ? unit - 1 : 0, len = 0;
    if (c && !c->iconv)
        at = 3;
    else if (by_mark(p, n))
        at += unit;
    for (; at < n && len < cap; at += unit)
        out[len++] = (char)p[at];
    return len;
}

/* ---- decoding ---- */

/* Appends UTF-8 from a decoder, dropping NULs and folding CR LF and CR to LF. */
struct sink {
    struct buf *out;
    struct decode_report *report;
    bool after_cr;
};

static int sink_add(struct sink *k, const char *s, size_t n, struct err *e)
{
    char *to = buf_room(k->out, n, e);
    if (!to)
        return -(int)e->code;
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '\0') {
            k->report->nuls++;
            continue;
        }
        if (c == '\r' || (c == '\n' && !k->after_cr))
            to[len++] = '\n';
        else if (c != '\n')
            to[len++] = c;
        k->after_cr = c == '\r';
    }
    k->out->len += len;
    k->out->data[k->out->len] = '\0';
    return 0;
}

static int decode_utf8(struct sink *k, const char *s, size_t n, const struct deadline *d,
                       struct err *e)
{
    for (size_t at = 0; at < n;) {
        size_t step = n - at < DECODE_STEP ? n - at : DECODE_STEP;
        if (at + step <
            n) /* a piece may end inside a sequence: leave its bytes for the next one */
            while (step > DECODE_STEP - 4 && ((unsigned char)s[at + step] & 0xc0) == 0x80)
                step--;
        size_t good = utf8_valid_prefix(s + at, step);
        int rc = sink_add(k, s + at, good, e);
        if (rc == 0 && good < step) {
            uint32_t cp;
            int len = utf8_decode(s + at + good, step - good, &cp);
            good += (size_t)(len < 0 ? -len : len);
            k->report->bad++;
            rc = sink_add(k, "\xef\xbf\xbd", 3, e);
        }
        if (rc == 0)
            rc = deadline_check(d, e);
        if (rc != 0)
            return rc;
        at += good;
    }
    return 0;
}

static int decode_iconv(struct sink *k, const struct charset *c, iconv_t cd, const char *s,
                        size_t n, const struct deadline *d, struct err *e)
{
    char piece[8192];
    char *in = (char *)(uintptr_t)s; /* iconv's prototype lacks the const that it honours */
    while (n > 0) {
        char *out = piece;
        size_t room = sizeof(piece);
        size_t got = iconv(cd, &in, &n, &out, &room);
        int why = errno;
        int rc = sink_add(k, piece, (size_t)(out - piece), e);
        if (rc == 0 && got == (size_t)-1 && why != E2BIG) {
            size_t step = why == EINVAL || n < (size_t)c->unit ? n : (size_t)c->unit;
            in += step;
            n -= step;
            k->report->bad++;
            rc = sink_add(k, "\xef\xbf\xbd", 3, e);
            iconv(cd, NULL, NULL, NULL, NULL);
        }
        if (rc == 0)
            rc = deadline_check(d, e);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int charset_decode(const struct charset *c, const unsigned char *p, size_t n,
                   const struct deadline *d, struct buf *out, struct decode_report *report,
                   struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        if (strcmp(marks[i].name, c->name) == 0 && n >= marks[i].len &&
            memcmp(p, marks[i].bytes, marks[i].len) == 0) {
            p += marks[i].len;
            n -= marks[i].len;
            break;
        }
    }
    struct sink k = {.out = out, .report = report};
    if (!c->iconv)
        return decode_utf8(&k, (const char *)p, n, d, e);
    iconv_t cd = iconv_open("UTF-8", c->iconv);
    if (cd == (iconv_t)-1 && errno == EINVAL)
        return err_set(e, REACH_DOC, ERR_UNSUPPORTED,
                       "the encoding %s is not known to this system", c->name);
    if (cd == (iconv_t)-1)
        return err_set(e, REACH_DOC, errno == ENOMEM ? ERR_NOMEM : ERR_IO,
                       "cannot decode %s: %s", c->name, strerror(errno));
    int rc = decode_iconv(&k, c, cd, (const char *)p, n, d, e);
    iconv_close(cd);
    return rc;
}
