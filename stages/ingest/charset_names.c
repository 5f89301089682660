/* Labels and what they mean. On the web a label means the superset that most pages with it are
 * really in; iconv's narrower tables would reject or mangle them. */
#include "stages/ingest/charset.h"

#include <string.h>
#include <strings.h>

static const struct charset charsets[] = {
    {"UTF-8", NULL, 1},
    {"UTF-16LE", "UTF-16LE", 2},
    {"UTF-16BE", "UTF-16BE", 2},
    {"UTF-32LE", "UTF-32LE", 4},
    {"UTF-32BE", "UTF-32BE", 4},
    {"windows-1250", "CP1250", 1},
    {"windows-1251", "CP1251", 1},
    {"windows-1252", "CP1252", 1},
    {"windows-1253", "CP1253", 1},
    {"windows-1254", "CP1254", 1},
    {"windows-1255", "CP1255", 1},
    {"windows-1256", "CP1256", 1},
    {"windows-1257", "CP1257", 1},
    {"windows-1258", "CP1258", 1},
    {"windows-874", "CP874", 1},
    {"ISO-8859-2", "ISO-8859-2", 1},
    {"ISO-8859-3", "ISO-8859-3", 1},
    {"ISO-8859-4", "ISO-8859-4", 1},
    {"ISO-8859-5", "ISO-8859-5", 1},
    {"ISO-8859-6", "ISO-8859-6", 1},
    {"ISO-8859-8", "ISO-8859-8", 1},
    {"ISO-8859-10", "ISO-8859-10", 1},
    {"ISO-8859-13", "ISO-8859-13", 1},
    {"ISO-8859-14", "ISO-8859-14", 1},
    {"ISO-8859-15", "ISO-8859-15", 1},
    {"ISO-8859-16", "ISO-8859-16", 1},
    {"KOI8-R", "KOI8-R", 1},
    {"KOI8-U", "KOI8-U", 1},
    {"macintosh", "MACINTOSH", 1},
    {"x-mac-cyrillic", "MAC-CYRILLIC", 1},
    {"IBM437", "CP437", 1},
    {"IBM850", "CP850", 1},
    {"IBM852", "CP852", 1},
    {"IBM855", "CP855", 1},
    {"IBM866", "CP866", 1},
    {"Shift_JIS", "CP932", 1},
    {"EUC-JP", "EUC-JP", 1},
    {"ISO-2022-JP", "ISO-2022-JP", 1},
    {"GB18030", "GB18030", 1},
    {"Big5", "BIG5-HKSCS", 1},
    {"EUC-KR", "CP949", 1},
    {"EUC-TW", "EUC-TW", 1},
};

struct alias {
    const char *label, *name;
};

/* Only labels that differ from the name. */
static const struct alias aliases[] = {
    {"utf8", "UTF-8"},
    {"unicode-1-1-utf-8", "UTF-8"},
    {"x-unicode20utf8", "UTF-8"},
    {"utf-16", "UTF-16LE"},
    {"utf16", "UTF-16LE"},
    {"unicode", "UTF-16LE"},
    {"ucs-2", "UTF-16LE"},
    {"iso-10646-ucs-2", "UTF-16LE"},
    {"unicodefffe", "UTF-16BE"},
    {"utf-32", "UTF-32LE"},
    {"utf32", "UTF-32LE"},
    {"ascii", "windows-1252"},
    {"us-ascii", "windows-1252"},
    {"ansi_x3.4-1968", "windows-1252"},
    {"iso-8859-1", "windows-1252"},
    {"iso8859-1", "windows-1252"},
    {"iso88591", "windows-1252"},
    {"iso_8859-1", "windows-1252"},
    {"iso_8859-1:1987", "windows-1252"},
    {"iso-ir-100", "windows-1252"},
    {"latin1", "windows-1252"},
    {"latin-1", "windows-1252"},
    {"l1", "windows-1252"},
    {"cp819", "windows-1252"},
    {"ibm819", "windows-1252"},
    {"cp1250", "windows-1250"},
    {"x-cp1250", "windows-1250"},
    {"cp1251", "windows-1251"},
    {"x-cp1251", "windows-1251"},
    {"cp1252", "windows-1252"},
    {"x-cp1252", "windows-1252"},
    {"x-ansi", "windows-1252"},
    {"cp1253", "windows-1253"},
    {"iso-8859-7", "windows-1253"},
    {"iso8859-7", "windows-1253"},
    {"greek", "windows-1253"},
    {"cp1254", "windows-1254"},
    {"iso-8859-9", "windows-1254"},
    {"iso8859-9", "windows-1254"},
    {"latin5", "windows-1254"},
    {"cp1255", "windows-1255"},
    {"iso-8859-8-i", "ISO-8859-8"},
    {"hebrew", "ISO-8859-8"},
    {"cp1256", "windows-1256"},
    {"arabic", "ISO-8859-6"},
    {"cp1257", "windows-1257"},
    {"cp1258", "windows-1258"},
    {"cp874", "windows-874"},
    {"tis-620", "windows-874"},
    {"iso-8859-11", "windows-874"},
    {"dos-874", "windows-874"},
    {"latin2", "ISO-8859-2"},
    {"iso8859-2", "ISO-8859-2"},
    {"l2", "ISO-8859-2"},
    {"latin3", "ISO-8859-3"},
    {"latin4", "ISO-8859-4"},
    {"cyrillic", "ISO-8859-5"},
    {"iso8859-5", "ISO-8859-5"},
    {"latin6", "ISO-8859-10"},
    {"latin9", "ISO-8859-15"},
    {"latin-9", "ISO-8859-15"},
    {"iso8859-15", "ISO-8859-15"},
    {"l9", "ISO-8859-15"},
    {"koi8", "KOI8-R"},
    {"koi", "KOI8-R"},
    {"cskoi8r", "KOI8-R"},
    {"koi8-ru", "KOI8-U"},
    {"mac", "macintosh"},
    {"x-mac-roman", "macintosh"},
    {"mac-centraleurope", "windows-1250"},
    {"mac-cyrillic", "x-mac-cyrillic"},
    {"x-mac-ukrainian", "x-mac-cyrillic"},
    {"cp437", "IBM437"},
    {"cp850", "IBM850"},
    {"cp852", "IBM852"},
    {"cp855", "IBM855"},
    {"cp866", "IBM866"},
    {"866", "IBM866"},
    {"shift-jis", "Shift_JIS"},
    {"sjis", "Shift_JIS"},
    {"x-sjis", "Shift_JIS"},
    {"ms_kanji", "Shift_JIS"},
    {"ms932", "Shift_JIS"},
    {"cp932", "Shift_JIS"},
    {"windows-31j", "Shift_JIS"},
    {"csshiftjis", "Shift_JIS"},
    {"x-euc-jp", "EUC-JP"},
    {"eucjp", "EUC-JP"},
    {"csiso2022jp", "ISO-2022-JP"},
    {"gb2312", "GB18030"},
    {"gb_2312", "GB18030"},
    {"gb_2312-80", "GB18030"},
    {"gbk", "GB18030"},
    {"x-gbk", "GB18030"},
    {"cp936", "GB18030"},
    {"chinese", "GB18030"},
    {"euc-cn", "GB18030"},
    {"hz-gb-2312", "GB18030"},
    {"big5-hkscs", "Big5"},
    {"big5hkscs", "Big5"},
    {"cn-big5", "Big5"},
    {"x-x-big5", "Big5"},
    {"cp950", "Big5"},
    {"korean", "EUC-KR"},
    {"ks_c_5601-1987", "EUC-KR"},
    {"ks_c_5601-1989", "EUC-KR"},
    {"ksc5601", "EUC-KR"},
    {"ksc_5601", "EUC-KR"},
    {"uhc", "EUC-KR"},
    {"windows-949", "EUC-KR"},
    {"cp949", "EUC-KR"},
};

static bool same(const char *label, size_t n, const char *other)
{
    return strlen(other) == n && strncasecmp(label, other, n) == 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f';
}

const struct charset *charset_find(const char *label, size_t n)
{
    while (n > 0 && is_blank(label[n - 1]))
        n--;
    while (n > 0 && is_blank(*label)) {
        label++;
        n--;
    }
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        if (same(label, n, aliases[i].label))
            return charset_find(aliases[i].name, strlen(aliases[i].name));
    for (size_t i = 0; i < ARRAY_LEN(charsets); i++)
        if (same(label, n, charsets[i].name))
            return &charsets[i];
    return NULL;
}

const struct charset *charset_at(size_t i)
{
    return i < ARRAY_LEN(charsets) ? &charsets[i] : NULL;
}
