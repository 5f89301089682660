/* pipeline/doctor.h - what may be wrong before a run begins: one row per check.
 *
 * What:   each check looks at one thing of the machine, or of a job, and says ok, warn (the run works, but not
 *         as it could) or fail (it will not), and what to do.
 * Not:    nothing is written, no weights are loaded, no document is opened.
 * Read:   doctor_checks.c has the rows; a new check is one function and one row.
 */
#ifndef QUIRE_PIPELINE_DOCTOR_H
#define QUIRE_PIPELINE_DOCTOR_H

#include "pipeline/job.h"
#include "pipeline/machine.h"

#include <stddef.h>

enum verdict { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct patient {
    const struct job *job; /* NULL: the machine alone */
    int kernels;           /* enum kernel_choice */
    int threads;           /* limits.threads; 0: of the machine */
    struct machine machine;
};

/* Says what was found in text, a sentence without an end. */
typedef enum verdict doctor_check_fn(const struct patient *p, char *text, size_t cap);

struct doctor_check {
    const char *name;
    bool of_job; /* looks at p->job */
    doctor_check_fn *run;
};

extern const struct doctor_check doctor_checks[];
extern const size_t n_doctor_checks;

/* The threads of the team, and where their number comes from. */
int doctor_threads(const struct patient *p, char *why, size_t cap);

/* `quire doctor kernels`: the table, why, and what the machine can do, which takes three seconds. */
int doctor_kernels(const struct patient *p, struct buf *out, struct err *e) MUST_CHECK;

#endif
