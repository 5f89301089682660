/* A folder for what is written to be read again, and that the reading is from the disk. */
#include "pipeline/bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int bench_folder_make(const struct bench *b, char out[BENCH_FOLDER], struct err *e)
{
    const char *place = b->o.folder ? b->o.folder : getenv("TMPDIR");
    snprintf(out, BENCH_FOLDER, "%s/quire-bench-XXXXXX", place ? place : "/tmp");
    return mkdtemp(out)
               ? 0
               : err_set(e, REACH_JOB, ERR_IO, "cannot make \"%s\": %s", out, strerror(errno));
}

/* Every file: gone, or only out of the system's cache. */
static void each_file(const char *folder, bool remove_it)
{
    DIR *d = opendir(folder);
    for (struct dirent *f; d && (f = readdir(d)) != NULL;) {
        if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0)
            continue;
        if (remove_it)
            unlinkat(dirfd(d), f->d_name, 0);
        int fd = remove_it ? -1 : openat(dirfd(d), f->d_name, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* only advice */
        close(fd);
    }
    if (d)
        closedir(d);
}

void bench_folder_cool(const char *folder)
{
    each_file(folder, false);
}

void bench_folder_remove(const char *folder)
{
    each_file(folder, true);
    rmdir(folder);
}
