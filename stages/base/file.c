#include "stages/base/file.h"

#include "stages/base/mem.h"
#include "stages/base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(struct err *e, const char *what, const char *path)
{
    return err_set(e, REACH_JOB, ERR_IO, "cannot %s \"%s\": %s", what, path, strerror(errno));
}

int file_read(const char *path, struct buf *b, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail(e, "open", path);
    char block[64 * 1024];
    long n = 0;
    int rc = 0;
    while (!rc && (n = sys_read(fd, block, sizeof(block))) > 0)
        if ((rc = buf_add(b, block, (size_t)n, e)) != 0)
            rc = err_wrap(e, "%s", path);
    if (!rc && n < 0)
        rc = fail(e, "read", path);
    close(fd);
    return rc;
}

int file_write_all(int fd, const void *data, size_t n, const char *path, struct err *e)
{
    const char *p = data;
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return fail(e, "write", path);
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

char *file_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return mem_strdup(".");
    size_t n = slash == path ? 1 : (size_t)(slash - path);
    char *p = mem_need(n + 1);
    memcpy(p, path, n);
    return p;
}

char *file_join(const char *folder, const char *name)
{
    const char *home = getenv("HOME");
    if (strncmp(name, "~/", 2) == 0 && home) {
        folder = home;
        name += 2;
    }
    if (name[0] == '/' || folder[0] == '\0' || strcmp(folder, ".") == 0)
        return mem_strdup(name);
    size_t a = strlen(folder), b = strlen(name);
    char *p = mem_need(a + b + 2);
    snprintf(p, a + b + 2, "%s%s%s", folder, folder[a - 1] == '/' ? "" : "/", name);
    return p;
}

char *file_cache_folder(void)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && xdg[0] == '/')
        return file_join(xdg, "quire");
    return home && home[0] == '/' ? file_join(home, ".cache/quire") : NULL;
}

int file_sync_parent(const char *path, struct err *e)
{
    char *dir = file_parent(path);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    if (fd < 0 || sys_fsync(fd) != 0)
        rc = fail(e, "sync folder", dir);
    if (fd >= 0)
        close(fd);
    free(dir);
    return rc;
}

int file_write_atomic(const char *path, const void *data, size_t n, struct err *e)
{
    size_t cap = strlen(path) + 32;
    char *tmp = mem_need(cap);
    snprintf(tmp, cap, "%s.tmp.%ld", path, (long)getpid());
    int rc = 0, fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        rc = fail(e, "create", tmp);
        goto out;
    }
    rc = file_write_all(fd, data, n, tmp, e);
    if (!rc && sys_fsync(fd) != 0)
        rc = fail(e, "sync", tmp);
    if (close(fd) != 0 && !rc)
        rc = fail(e, "close", tmp);
    if (!rc && rename(tmp, path) != 0)
        rc = fail(e, "rename to", path);
    if (rc)
        unlink(tmp);
    else
        rc = file_sync_parent(path, e);
out:
    free(tmp);
    return rc;
}

int file_make_dirs(const char *path, struct err *e)
{
    char *p = mem_strdup(path);
    int rc = 0;
    for (char *s = p + 1; !rc; s++) {
        if (*s != '/' && *s != '\0')
            continue;
        char was = *s;
        *s = '\0';
        struct stat st;
        if (mkdir(p, 0755) != 0 &&
            (errno != EEXIST || stat(p, &st) != 0 || !S_ISDIR(st.st_mode)))
            rc = fail(e, "make folder", p);
        *s = was;
        if (was == '\0')
            break;
    }
    free(p);
    return rc;
}

static int64_t nanoseconds(struct timespec t)
{
    return (int64_t)((uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec);
}

static struct file_id id_of(const struct stat *st)
{
    return (struct file_id){.dev = st->st_dev,
                            .ino = st->st_ino,
                            .size = (uint64_t)st->st_size,
                            .mtime_ns = nanoseconds(st->st_mtim),
                            .ctime_ns = nanoseconds(st->st_ctim)};
}

int file_id_of(const char *path, struct file_id *out, struct err *e)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return fail(e, "stat", path);
    *out = id_of(&st);
    return 0;
}

bool file_id_equal(const struct file_id *a, const struct file_id *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

int file_open_own(const char *path, uint64_t *size, const char **why)
{
    struct stat st;
    *why = NULL;
    /* O_NONBLOCK: a pipe of this name must not hold us up. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        *why = "no plain file";
    else if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
        *why = "others may write it";
    if (*why) {
        close(fd);
        return -1;
    }
    *size = (uint64_t)st.st_size;
    return fd;
}

int file_map_open(struct file_map *m, const char *path, struct err *e)
{
    *m = (struct file_map){.data = (const unsigned char *)"", .len = 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    if (fd < 0)
        return fail(e, "open", path);
    struct stat st = {0};
    if (fstat(fd, &st) != 0) {
        rc = fail(e, "stat", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, REACH_JOB, ERR_IO, "\"%s\" is not a plain file", path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            rc = fail(e, "map", path);
        else
            *m = (struct file_map){.data = p, .len = (size_t)st.st_size};
    }
    m->id = id_of(&st);
    close(fd);
    return rc;
}

void file_map_close(struct file_map *m)
{
    if (m->len) {
        union {
            const void *c;
            void *v;
        } u = {.c = m->data};
        munmap(u.v, m->len);
    }
    *m = (struct file_map){0};
}
