/* Property: any bytes, read as Markdown, give a document whose text is valid UTF-8 without NUL and whose
 * blocks are in range, disjoint, rising and cover everything but white space - or a failure with a
 * message; in either case well within the time limit, and the same again. */
#include "tests/fuzz/fuzz_ingest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_extract(AS_MARKDOWN, "a.md", data, size);
    return 0;
}
