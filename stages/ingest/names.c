#include "stages/ingest/names.h"

#include "stages/base/mem.h"
#include "stages/base/utf8.h"
#include "stages/ingest/zip_dir.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_LABEL = 16 << 10, SAMPLE_BYTES = 64 << 10 };

static int add_printable(struct buf *out, const char *s, size_t n, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        bool plain = len > 0 && cp >= ' ' && cp != 0x7f && !(cp >= 0x80 && cp < 0xa0);
        if (plain)
            rc = buf_add(out, s + i, (size_t)len, e);
        for (int k = 0; !plain && rc == 0 && k < abs(len); k++)
            rc = buf_addf(out, e, "\\x%02x", (unsigned char)s[i + (size_t)k]);
        i += (size_t)abs(len);
    }
    return rc;
}

char *label_new(const char *raw, size_t n, const struct charset *legacy)
{
    struct err e = {0};
    struct buf out, decoded;
    buf_init(&out, MAX_LABEL);
    buf_init(&decoded, MAX_LABEL);
    if (legacy && utf8_valid_prefix(raw, n) < n) {
        struct decode_report report = {0};
        if (charset_decode(legacy, (const unsigned char *)raw, n, NULL, &decoded, &report,
                           &e) == 0 &&
            report.bad == 0) {
            raw = decoded.data;
            n = decoded.len;
        }
    }
    mem_insist(&e);
    /* A name over the bound ends in dots: it is a label. */
    err_clear(&e);
    if (add_printable(&out, raw, n, &e) != 0 && out.len + 3 <= MAX_LABEL) {
        mem_insist(&e);
        err_clear(&e);
        if (buf_adds(&out, "...", &e) != 0)
            buf_clear(&out);
    }
    mem_insist(&e);
    buf_release(&decoded);
    return buf_take(&out);
}

const char *label_base(const char *label)
{
    const char *base = label;
    for (const char *p = label; *p; p++)
        if ((*p == '/' || *p == '\\') && p[1] && !(p[0] == '\\' && p[1] == 'x'))
            base = p + 1;
    return base;
}

char *label_unpacked(const char *label)
{
    static const struct {
        const char *suffix, *instead;
    } known[] = {{".gz", ""},      {".bz2", ""},     {".xz", ""},      {".zst", ""},
                 {".lz4", ""},     {".Z", ""},       {".tgz", ".tar"}, {".tbz2", ".tar"},
                 {".txz", ".tar"}, {".tzst", ".tar"}};
    size_t n = strlen(label);
    char *out = mem_need(n + 8);
    memcpy(out, label, n);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        size_t len = strlen(known[i].suffix);
        if (n > len && strcasecmp(label + n - len, known[i].suffix) == 0) {
            memcpy(out + n - len, known[i].instead, strlen(known[i].instead) + 1);
            break;
        }
    }
    return out;
}

static bool matches(const struct opt_list *patterns, const char *label)
{
    const char *base = label_base(label);
    for (size_t i = 0; i < patterns->n; i++)
        if (fnmatch(patterns->items[i], base, 0) == 0)
            return true;
    return false;
}

bool label_excluded(const struct ingest_config *cfg, const char *label)
{
    return matches(&cfg->exclude, label);
}

bool label_included(const struct ingest_config *cfg, const char *label)
{
    return cfg->include.n == 0 || matches(&cfg->include, label);
}

/* ---- code page of a zip's names ---- */

struct sample {
    struct buf names;
};

static bool add_legacy_name(void *to, const char *name, size_t len, bool utf8_flag)
{
    struct sample *s = to;
    struct err e = {0};
    if (utf8_flag || utf8_valid_prefix(name, len) == len)
        return true;
    bool room = buf_add(&s->names, name, len, &e) == 0 && buf_addc(&s->names, '\n', &e) == 0;
    mem_insist(&e);
    return room;
}

const struct charset *zip_names_charset(int fd, int64_t max, struct err *e)
{
    struct sample s;
    buf_init(&s.names, SAMPLE_BYTES);
    const struct charset *c = NULL;
    if (zip_dir_names(fd, max, add_legacy_name, &s, e) > 0 && s.names.len > 0)
        c = charset_detect((const unsigned char *)s.names.data, s.names.len);
    buf_release(&s.names);
    return c;
}
