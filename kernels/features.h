/* kernels/features.h - what this CPU has of what the tables need, by name. */
#ifndef QUIRE_KERNELS_FEATURES_H
#define QUIRE_KERNELS_FEATURES_H

#include <stdbool.h>
#include <stddef.h>

struct kern_feature {
    const char *name;  /* "avx2" */
    const char *table; /* the table that needs it */
    bool there;
};

enum { KERN_FEATURES_MAX = 16 };

/* All of them into out[cap], those of one table side by side. Returns how many. */
size_t kern_features(struct kern_feature *out, size_t cap);

#endif
