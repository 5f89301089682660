#include "stages/ingest/ingest_opts.h"

static const char *const as_names[] = {"auto", "text",  "markdown", "html",
                                       "xml",  "jsonl", NULL};

static const char *const isolation_names[] = {"auto", "yes", "no", NULL};

#define AT(field) offsetof(struct ingest_config, field)

const struct opt ingest_opts[] = {
    {"from", OPT_PATHS, AT(from), NULL, 0, 0, NULL, OPT_REQUIRED | OPT_ENV | OPT_FREE,
     "Where the documents are: files, folders (read recursively, in name order), archives, and "
     "glob "
     "patterns such as archive/*.zip."},
    {"include", OPT_STRINGS, AT(include), NULL, 0, 0, NULL, OPT_FREE,
     "Name patterns such as \"*.txt\"; a document is read when its file name or entry name "
     "matches one. "
     "Archives are always opened. Empty: everything."},
    {"exclude", OPT_STRINGS, AT(exclude), NULL, 0, 0, NULL, OPT_FREE,
     "Name patterns of files and entries to leave out. Wins over include."},
    {"as", OPT_ENUM, AT(as), "auto", 0, 0, as_names, 0,
     "How to read a document. auto decides from its first bytes, then its name."},
    {"text_field", OPT_STRING, AT(text_field), "text", 0, 0, NULL, 0,
     "JSONL: the field with the text of a document; a dot reaches into objects (body.text)."},
    {"id_field", OPT_STRING, AT(id_field), NULL, 0, 0, NULL, 0,
     "JSONL: the field with a name for the document. Unset: the line number."},
    {"title_field", OPT_STRING, AT(title_field), NULL, 0, 0, NULL, 0,
     "JSONL: the field with a title."},
    {"encoding", OPT_STRING, AT(encoding), NULL, 0, 0, NULL, 0,
     "Character encoding of text without a byte order mark, such as windows-1252. Unset: what "
     "the "
     "document declares, then UTF-8 if it is valid, then a detector."},
    {"name_encoding", OPT_STRING, AT(name_encoding), NULL, 0, 0, NULL, 0,
     "Character encoding of entry names that are not UTF-8, such as cp866. Unset: detected "
     "over all names "
     "of a zip file; elsewhere such bytes are shown as \\xNN."},
    {"max_depth", OPT_INT, AT(max_depth), "5", 1, 16, NULL, OPT_LIMIT,
     "Archives inside archives: how deep to look."},
    {"max_entries", OPT_INT, AT(max_entries), "100000", 1, 100000000, NULL, OPT_LIMIT,
     "Entries in one archive, inner archives included; the rest is one named failure."},
    {"max_document", OPT_BYTES, AT(max_document), "16MiB", 1024, 4294967296.0, NULL, OPT_LIMIT,
     "Largest document, before and after its text is taken out. Larger ones fail by name. "
     "Raise it when "
     "your documents are longer: a run holds several in memory."},
    {"max_container", OPT_BYTES, AT(max_container), "64GiB", 1024, 0x1p50, NULL, OPT_LIMIT,
     "Bytes that one archive may deliver in all."},
    {"max_ratio", OPT_INT, AT(max_ratio), "200", 2, 1000000, NULL, OPT_LIMIT,
     "Largest ratio of delivered to packed bytes of an entry, checked after the first MiB."},
    {"timeout", OPT_SECONDS, AT(timeout), "60s", 0.01, 86400, NULL, OPT_LIMIT,
     "Longest time to read and extract one document."},
    {"isolation", OPT_ENUM, AT(isolation), "auto", 0, 0, isolation_names, OPT_FREE,
     "Documents are read by a process of its own, without files, network or other processes: "
     "one that "
     "crashes it or asks too much of it fails alone. yes: not without a filter of system "
     "calls. auto: "
     "with a warning where the kernel has none. no: in the process of the run, to look for "
     "errors."},
    {"memory", OPT_BYTES, AT(memory), "0", 0, 0x1p40, NULL, OPT_LIMIT,
     "Memory that reading may take; a document that needs more fails. 0: a few times "
     "max_document, and "
     "192 MiB for the dictionaries of decompressors. Counted in the plan."},
};
const size_t n_ingest_opts = sizeof(ingest_opts) / sizeof(ingest_opts[0]);
