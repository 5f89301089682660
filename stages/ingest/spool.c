#include "stages/ingest/spool.h"

#include "stages/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_unnamed(struct err *e)
{
    const char *folder = getenv("TMPDIR");
    char *path = file_join(folder && *folder ? folder : "/tmp", "quire-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) {
        err_set(e, REACH_DOC, ERR_IO, "no temporary file %s: %s", path, strerror(errno));
    } else {
        unlink(path);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    free(path);
    return fd;
}

void spool_fill(struct spool *sp, int n)
{
    while (sp->n < n && sp->n < SPOOL_FILES && !sp->why.code) {
        int fd = open_unnamed(&sp->why);
        if (fd >= 0)
            sp->fds[sp->n++] = fd;
    }
    sp->sealed = true;
}

int spool_take(struct spool *sp, struct err *e)
{
    if (sp->used == sp->n) {
        if (sp->why.code) {
            *e = sp->why;
            return -(int)e->code;
        }
        if (sp->sealed || sp->n == SPOOL_FILES)
            return err_set(e, REACH_DOC, ERR_IO, "no temporary file is left");
        int fd = open_unnamed(e);
        if (fd < 0)
            return -(int)e->code;
        sp->fds[sp->n++] = fd;
    }
    /* The reader reads with pread(2) and closes what it was given; the file stays for the next. */
    int kept = sp->fds[sp->used], fd = -1;
    if (ftruncate(kept, 0) == 0 && lseek(kept, 0, SEEK_SET) == 0)
        fd = fcntl(kept, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return err_set(e, REACH_DOC, ERR_IO, "a temporary file: %s", strerror(errno));
    sp->used++;
    return fd;
}

void spool_put(struct spool *sp)
{
    sp->used--;
    if (ftruncate(sp->fds[sp->used], 0) != 0)
        return; /* it is emptied again before it is used */
}

void spool_release(struct spool *sp)
{
    while (sp->n > 0)
        close(sp->fds[--sp->n]);
}
