#include "stages/ingest/libraries.h"

#include "stages/base/hash.h"
#include "stages/base/log.h"
#include "stages/ingest/charset.h"

#include <iconv.h>
#include <libxml/parser.h>

/* Documents must not make the parser open files or connections. */
static xmlParserInputPtr load_nothing(const char *url, const char *id, xmlParserCtxtPtr ctxt)
{
    (void)url, (void)id, (void)ctxt;
    return NULL;
}

void libraries_open(void)
{
    xmlInitParser();
    xmlSetExternalEntityLoader(load_nothing);
}

void libraries_load(void)
{
    uint8_t digest[HASH_BYTES];
    libraries_open();
    hash_bytes("", 0, digest);
    /* A table stays loaded while a converter is open; none of these is closed. */
    for (size_t i = 0; charset_at(i); i++)
        if (charset_at(i)->iconv)
            iconv_open("UTF-8", charset_at(i)->iconv);
}

void libraries_enter(struct libraries *l)
{
    l->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    l->before = l->utf8 ? uselocale(l->utf8) : (locale_t)0;
    if (!l->utf8)
        log_warn("ingest", "there is no locale C.UTF-8: entry names may be lost");
}

void libraries_leave(struct libraries *l)
{
    if (!l->utf8)
        return;
    uselocale(l->before);
    freelocale(l->utf8);
}
