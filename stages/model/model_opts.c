#include "stages/model/model_opts.h"

static const char *const kinds[] = {"gguf", "null", NULL};
static const char *const kernel_names[] = {"auto", "ref",     "avx2", "avx512",
                                           "neon", "dotprod", NULL};

#define M(field) offsetof(struct model_config, field)
#define P(field) offsetof(struct prompt_config, field)

const struct opt model_opts[] = {
    {"kind", OPT_ENUM, M(kind), "gguf", 0, 0, kinds, OPT_FREE,
     "gguf: a language model from a file. null: no model; every answer is a hash of its "
     "prompt, to try "
     "a job file and the flow of an archive in seconds: `--set model.kind=null`."},
    {"file", OPT_PATH, M(file), NULL, 0, 0, NULL, OPT_ENV | OPT_FREE,
     "The GGUF file. Required unless kind is null, which does not open it."},
    {"context", OPT_TOKENS, M(context), "0", 0, 1 << 24, NULL, OPT_FREE,
     "Longest prompt and answer together. 0: 8192, or less when the model was trained for "
     "less."},
    {"kernels", OPT_ENUM, M(kernels), "auto", 0, 0, kernel_names, OPT_FREE,
     "Which table of kernels computes. All give the same bytes; auto takes the fastest that "
     "this CPU has. avx2: AVX2, FMA and F16C; avx512: AVX-512 F, BW, DQ, VL and VNNI; neon: "
     "64-bit Arm; dotprod: with its dot product of bytes. Instructions beyond the table named "
     "here are not used."},
    {"verify", OPT_BOOL, M(verify), "no", 0, 0, NULL, OPT_FREE,
     "Read the whole file to compute its digest, and say whether the one that was remembered "
     "from an "
     "earlier run is right. Otherwise a file with the same path, size, times and inode is "
     "taken "
     "for the same."},
    {"packed_cache", OPT_STRING, M(packed_cache), "auto", 0, 0, NULL, OPT_FREE,
     "Folder where the weights stay as the kernels take them, so that the next start maps them "
     "instead of packing them anew, and processes share them. Never changes an answer; "
     "deleting "
     "it costs only time. auto: for weights of 256 MiB and more, the folder packed in kv.disk, "
     "or in $XDG_CACHE_HOME/quire (~/.cache/quire) without one. no: nowhere. With model.verify "
     "all of a file is checked before it is used."},
    {"packed_limit", OPT_BYTES, M(packed_limit), "32GiB", 0, 0x1p60, NULL, OPT_FREE,
     "Most that the packed weights of all models may take in that folder; those used longest "
     "ago "
     "make room. 0: no limit."},
};
const size_t n_model_opts = sizeof(model_opts) / sizeof(model_opts[0]);

const struct opt prompt_opts[] = {
    {"template", OPT_STRING, P(template), "auto", 0, 0, NULL, OPT_FREE,
     "Chat template. auto: the model file's own, recognised and proven. Or one of chatml, "
     "gemma, llama3, "
     "mistral-v1, mistral-v3, mistral-v3-tekken, zephyr, phi3; or the path of a file with a "
     "Jinja template; "
     "or none, which joins the texts with blank lines for models that only continue text."},
    {"system", OPT_STRING, P(system), NULL, 0, 0, NULL, 0,
     "System text. Unset: the template's own default, if it has one."},
    {"document", OPT_STRING, P(document), NULL, 0, 0, NULL, 0,
     "What is asked over a document or chunk. {{text}} is replaced by its text and must appear "
     "once; "
     "{{title}}, {{headings}} and {{question}} may. Put fixed instructions first: what is "
     "equal at the "
     "start of all prompts is computed once. Unset: a text that suits the task."},
    {"reduce", OPT_STRING, P(reduce), NULL, 0, 0, NULL, 0,
     "What is asked over partial answers; {{text}} is replaced by them. Unset: a text that "
     "suits the task."},
    {"date", OPT_STRING, P(date), NULL, 0, 0, NULL, 0,
     "Date for templates that print one, such as 26 Jul 2024. It must be fixed here: today's "
     "date would "
     "change every prompt, and every answer, from one night to the next."},
};
const size_t n_prompt_opts = sizeof(prompt_opts) / sizeof(prompt_opts[0]);
