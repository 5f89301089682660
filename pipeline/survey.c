#include "pipeline/survey.h"

#include <errno.h>
#include <fts.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>

/* A file, or all files below a folder. fts(3) walks without recursion. */
static int count_path(struct survey *s, char *path, struct err *e)
{
    char *paths[] = {path, NULL};
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_COMFOLLOW, NULL);
    if (!walk)
        return err_set(e, REACH_JOB, ERR_CONFIG, "ingest.from: \"%s\": %s", path,
                       strerror(errno));
    int rc = 0;
    for (FTSENT *x; !rc && (x = fts_read(walk)) != NULL;) {
        if (x->fts_level == 0 &&
            (x->fts_info == FTS_NS || x->fts_info == FTS_DNR || x->fts_info == FTS_ERR))
            rc = err_set(e, REACH_JOB, ERR_CONFIG, "ingest.from: \"%s\": %s", path,
                         strerror(x->fts_errno));
        if (x->fts_info == FTS_F) {
            s->files++;
            s->bytes += (uint64_t)x->fts_statp->st_size;
        }
    }
    fts_close(walk);
    return rc;
}

static int count_pattern(struct survey *s, const char *pattern, struct err *e)
{
    glob_t g;
    int found = glob(pattern, GLOB_NOSORT, NULL, &g), rc = 0;
    if (found == GLOB_NOMATCH)
        return err_set(e, REACH_JOB, ERR_CONFIG, "ingest.from: nothing matches \"%s\"",
                       pattern);
    if (found != 0)
        return err_set(e, REACH_JOB, ERR_CONFIG, "ingest.from: cannot expand \"%s\"", pattern);
    for (size_t i = 0; !rc && i < g.gl_pathc; i++)
        rc = count_path(s, g.gl_pathv[i], e);
    globfree(&g);
    return rc;
}

int survey_count(struct survey *s, const struct opt_list *from, struct err *e)
{
    *s = (struct survey){0};
    int rc = 0;
    for (size_t i = 0; !rc && i < from->n; i++) {
        struct stat st;
        /* A name that is there is meant as it is, whatever characters it has. */
        bool pattern = strpbrk(from->items[i], "*?[") && lstat(from->items[i], &st) != 0;
        rc = pattern ? count_pattern(s, from->items[i], e) : count_path(s, from->items[i], e);
    }
    return rc;
}
