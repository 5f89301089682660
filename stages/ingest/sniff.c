#include "stages/ingest/sniff.h"

#include "stages/base/err.h"
#include "stages/base/le.h"

#include <string.h>
#include <strings.h>

static bool starts(const unsigned char *p, size_t n, const char *magic, size_t len)
{
    return n >= len && memcmp(p, magic, len) == 0;
}

/* ---- containers ---- */

enum { TAR_BLOCK = 512, TAR_SUM_AT = 148, TAR_SUM_END = 156, CPIO_ODC = 76, CPIO_NEWC = 110 };

/* The header's checksum, in octal, is the sum of its bytes with the checksum taken as blanks. */
static bool is_tar(const unsigned char *p, size_t n)
{
    if (n < TAR_BLOCK)
        return false;
    long want = 0, bytes = 0, chars = 0;
    bool digits = false;
    for (size_t i = TAR_SUM_AT; i < TAR_SUM_END; i++) {
        if (p[i] >= '0' && p[i] <= '7') {
            want = want * 8 + (p[i] - '0');
            digits = true;
        } else if (digits || p[i] != ' ') {
            break;
        }
    }
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        int c = i >= TAR_SUM_AT && i < TAR_SUM_END ? ' ' : p[i];
        bytes += c;
        chars += c < 128 ? c : c - 256; /* some old writers summed signed chars */
    }
    return digits && (want == bytes || want == chars);
}

static bool all_in(const unsigned char *p, size_t n, const char *set)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] == '\0' || !strchr(set, p[i]))
            return false;
    return true;
}

static bool is_cpio(const unsigned char *p, size_t n)
{
    if (starts(p, n, "070707", 6))
        return n >= CPIO_ODC && all_in(p, CPIO_ODC, "01234567");
    if (starts(p, n, "070701", 6) || starts(p, n, "070702", 6))
        return n >= CPIO_NEWC && all_in(p, CPIO_NEWC, "0123456789abcdefABCDEF");
    return false;
}

/* A local header with a version and a method that exist and a name of possible length, or the
 * end record of an empty archive. */
static bool is_zip(const unsigned char *p, size_t n)
{
    if (starts(p, n, "PK\7\10PK\3\4", 8) || starts(p, n, "PK00PK\3\4", 8)) {
        p += 4;
        n -= 4;
    }
    if (starts(p, n, "PK\5\6", 4))
        return n >= 22 && le32_get(p + 4) == 0;
    if (!starts(p, n, "PK\3\4", 4) || n < 30)
        return false;
    unsigned version = p[4], method = le16_get(p + 8), name = le16_get(p + 26);
    return version <= 70 && method < 100 && name > 0 && name < 4096 * 4;
}

enum layer sniff_layer(const unsigned char *p, size_t n)
{
    if (starts(p, n, "\x1f\x8b\x08", 3))
        return LAYER_GZIP;
    if (n >= 10 && starts(p, n, "BZh", 3) && p[3] >= '1' && p[3] <= '9' &&
        (memcmp(p + 4, "\x31\x41\x59\x26\x53\x59", 6) == 0 ||
         memcmp(p + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0))
        return LAYER_BZIP2;
    if (starts(p, n,
               "\xfd"
               "7zXZ\0",
               6))
        return LAYER_XZ;
    if (starts(p, n, "\x28\xb5\x2f\xfd", 4))
        return LAYER_ZSTD;
    if (starts(p, n, "\x04\x22\x4d\x18", 4))
        return LAYER_LZ4;
    if (starts(p, n, "\x1f\x9d", 2) && n > 3 && (p[2] & 0x60) == 0 && (p[2] & 0x1f) >= 9 &&
        (p[2] & 0x1f) <= 16)
        return LAYER_COMPRESS;
    if (is_zip(p, n))
        return LAYER_ZIP;
    if (starts(p, n, "7z\xbc\xaf\x27\x1c", 6))
        return LAYER_7Z;
    if (is_cpio(p, n))
        return LAYER_CPIO;
    if (is_tar(p, n))
        return LAYER_TAR;
    return LAYER_NONE;
}

const char *layer_name(enum layer l)
{
    static const char *const names[] = {"plain",    "gzip", "bzip2", "xz", "zstd", "lz4",
                                        "compress", "zip",  "tar",   "7z", "cpio"};
    return names[l];
}

/* ---- documents that are not read ---- */

struct magic {
    size_t at;
    const char *bytes;
    size_t len;
    const char *why;
};

#define MAGIC(at, text, why)                                                                   \
    {                                                                                          \
        at, text, sizeof(text) - 1, why                                                        \
    }
#define DOCUMENTS(name)                                                                        \
    name " documents are not read yet; convert them to text, Markdown or HTML"
#define ARCHIVES(name)                                                                         \
    name " archives are not read; unpack them first, or repack them as zip or tar"

static const struct magic refused[] = {
    MAGIC(0, "%PDF-", DOCUMENTS("PDF")),
    MAGIC(0, "{\\rtf", DOCUMENTS("RTF")),
    MAGIC(0, "WARC/", ARCHIVES("WARC")),
    MAGIC(0, "%!PS", DOCUMENTS("PostScript")),
    MAGIC(0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", DOCUMENTS("Old Office (DOC, XLS, PPT, MSG)")),
    MAGIC(0, "Rar!\x1a\x07", ARCHIVES("RAR")),
    MAGIC(0, "MSCF\0\0\0\0", ARCHIVES("CAB")),
    MAGIC(0, "xar!", ARCHIVES("XAR")),
    MAGIC(2, "-lh", ARCHIVES("LHA")),
    MAGIC(0, "\x60\xea", ARCHIVES("ARJ")),
    MAGIC(0x101, "ustar", "a damaged tar archive"), /* the checksum was tried before */
    MAGIC(0, "\x89PNG\r\n\x1a\n", "PNG images are not read"),
    MAGIC(0, "\xff\xd8\xff", "JPEG images are not read"),
    MAGIC(0, "GIF87a", "GIF images are not read"),
    MAGIC(0, "GIF89a", "GIF images are not read"),
    MAGIC(0, "II*\0", "TIFF images are not read"),
    MAGIC(0, "MM\0*", "TIFF images are not read"),
    MAGIC(8, "WEBP", "WebP images are not read"),
    MAGIC(4, "ftyp", "MP4 and HEIF media are not read"),
    MAGIC(0, "OggS", "Ogg media are not read"),
    MAGIC(0, "ID3", "MP3 audio is not read"),
    MAGIC(0, "fLaC", "FLAC audio is not read"),
    MAGIC(0, "\x1a\x45\xdf\xa3", "Matroska media are not read"),
    MAGIC(0, "\x7f\x45LF", "programs (ELF) are not read"),
    MAGIC(0, "SQLite format 3\0", "SQLite databases are not read"),
    MAGIC(0, "AT&TFORM", DOCUMENTS("DjVu")),
    MAGIC(0, "ITSF", DOCUMENTS("CHM")),
    MAGIC(60, "BOOKMOBI", DOCUMENTS("MOBI")),
    MAGIC(60, "TEXtREAd", DOCUMENTS("PalmDOC")),
    MAGIC(0, "!BDN", DOCUMENTS("Outlook PST")),
    MAGIC(0, "wOFF", "fonts (WOFF) are not read"),
    MAGIC(0, "wOF2", "fonts (WOFF) are not read"),
};

const char *sniff_refused(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        const struct magic *m = &refused[i];
        if (n >= m->at + m->len && memcmp(p + m->at, m->bytes, m->len) == 0)
            return m->why;
    }
    return NULL;
}

/* ---- mail ---- */

static size_t line_end(const unsigned char *p, size_t n, size_t at)
{
    while (at < n && p[at] != '\n')
        at++;
    return at;
}

/* Length of the field name when a line looks like "Name: ...", else 0. */
static size_t field_name(const unsigned char *line, size_t n)
{
    size_t i = 0;
    while (i < n && line[i] > ' ' && line[i] < 127 && line[i] != ':')
        i++;
    return i < n && line[i] == ':' ? i : 0;
}

/* Does a header block begin at p, with a field that mail always has? */
static bool is_mail_header(const unsigned char *p, size_t n)
{
    static const char *const sure[] = {"MIME-Version",  "Message-ID",   "Received",
                                       "Return-Path",   "Delivered-To", "X-Mailer",
                                       "DKIM-Signature"};
    static const char *const usual[] = {"From", "To", "Subject", "Date", "Cc", "Reply-To"};
    int n_sure = 0, n_usual = 0;
    for (size_t at = 0; at < n;) {
        size_t end = line_end(p, n, at);
        const unsigned char *line = p + at;
        size_t len = end - at, name = field_name(line, len);
        if (len == 0 || (len == 1 && line[0] == '\r'))
            break; /* the blank line after the header */
        bool folded = at > 0 && (line[0] == ' ' || line[0] == '\t');
        if (name == 0 && !folded) {
            if (end < n)
                return false;
            break; /* the line that the look-ahead cut */
        }
        for (size_t i = 0; i < ARRAY_LEN(sure); i++)
            n_sure +=
                name == strlen(sure[i]) && strncasecmp((const char *)line, sure[i], name) == 0;
        for (size_t i = 0; i < ARRAY_LEN(usual); i++)
            n_usual += name == strlen(usual[i]) &&
                       strncasecmp((const char *)line, usual[i], name) == 0;
        at = end + 1;
    }
    return (n_sure >= 1 && n_sure + n_usual >= 2) || n_usual >= 3;
}

/* "From someone Mon Jun 01 10:00:00 2009": a time with two colons and a year at the end. */
static bool is_from_line(const unsigned char *p, size_t n)
{
    if (!starts(p, n, "From ", 5))
        return false;
    size_t end = line_end(p, n, 0), colons = 0;
    while (end > 0 && (p[end - 1] == '\r' || p[end - 1] == ' '))
        end--;
    for (size_t i = 5; i + 2 < end; i++)
        colons += p[i] == ':' && p[i + 1] >= '0' && p[i + 1] <= '9' && p[i - 1] >= '0' &&
                  p[i - 1] <= '9';
    return end < 200 && colons >= 1 && all_in(p + end - 4, 4, "0123456789");
}

const char *sniff_mail(const unsigned char *p, size_t n, const char *name)
{
    if (is_from_line(p, n))
        return "mail (mbox) is not read yet";
    if (is_mail_header(p, n))
        return "mail (RFC 5322, .eml) is not read yet";
    const char *dot = name ? strrchr(name, '.') : NULL;
    if (dot && strcasecmp(dot, ".eml") == 0 && field_name(p, line_end(p, n, 0)) > 0)
        return "mail (RFC 5322, .eml) is not read yet";
    return NULL;
}
