#include "stages/write/write_opts.h"

#define AT(field) offsetof(struct write_config, field)

const struct opt write_opts[] = {
    {"to", OPT_PATH, AT(to), NULL, 0, 0, NULL, OPT_REQUIRED | OPT_ENV | OPT_FREE,
     "Folder for the results, and for what is known of an unfinished run; made if it is "
     "missing. Results of an earlier run there are replaced when this run finishes."},
    {"formats", OPT_STRINGS, AT(formats), NULL, 0, 0, NULL, OPT_FREE,
     "jsonl: results.jsonl, always written. markdown: also one file per document in "
     "summaries/."},
    {"chunks", OPT_BOOL, AT(chunks), "no", 0, 0, NULL, 0,
     "Keep the partial answers of map_reduce in the record, with their spans."},
    {"partial_ok", OPT_BOOL, AT(partial_ok), "no", 0, 0, NULL, OPT_FREE,
     "Exit with 0 although some documents failed, for schedulers that would run the job "
     "again."},
};
const size_t n_write_opts = sizeof(write_opts) / sizeof(write_opts[0]);
