/* stages/ingest/xml_tags.h - tags that libxml2 must not be shown.
 *
 * What:   refuses a tag with so many attributes that libxml2, which compares each with all others,
 *         would take minutes.
 * Thread: pure. Cost: one pass.
 */
#ifndef QUIRE_INGEST_XML_TAGS_H
#define QUIRE_INGEST_XML_TAGS_H

#include "stages/base/err.h"

#include <stddef.h>

enum { MAX_XML_DEPTH = 1024, MAX_XML_ATTRIBUTES = 1000 };

/* Can c begin a name? */
static inline bool xml_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' ||
           (unsigned char)c >= 0x80;
}

/* -ERR_LIMIT when a tag of XML has more than MAX_XML_ATTRIBUTES. */
int xml_tags_check(const char *s, size_t n, struct err *e) MUST_CHECK;

#endif
