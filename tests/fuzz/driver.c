/* Runs a fuzz target over files and folders without a fuzzer, so that every corpus is also a test. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int files;

static void run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(1);
    }
    size_t cap = 1 << 16, n = 0, got;
    uint8_t *data = malloc(cap);
    while (data && (got = fread(data + n, 1, cap - n, f)) > 0)
        if ((n += got) == cap)
            data = realloc(data, cap *= 2);
    fclose(f);
    if (!data)
        abort();
    /* An exact-size copy lets the address sanitizer see a read past the end. */
    uint8_t *exact = malloc(n ? n : 1);
    memcpy(exact, data, n);
    free(data);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    files++;
}

static void run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        exit(1);
    }
    if (!S_ISDIR(st.st_mode)) {
        run_file(path);
        return;
    }
    DIR *d = opendir(path);
    if (!d) {
        perror(path);
        exit(1);
    }
    for (struct dirent *x; (x = readdir(d)) != NULL;) {
        char inner[4096];
        if (x->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof(inner), "%s/%s", path, x->d_name);
        run_path(inner);
    }
    closedir(d);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run_path(argv[i]);
    printf("%d inputs, no crash\n", files);
    return files > 0 ? 0 : 1;
}
