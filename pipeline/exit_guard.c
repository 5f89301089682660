#include "pipeline/exit_guard.h"

#include "pipeline/cmd.h"
#include "stages/base/log.h"
#include "stages/base/mem.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool on;

/* The other threads are still at work: nothing may be freed, and no other handler may run. */
static void at_exit(void)
{
    if (!atomic_load(&on))
        return;
    log_error("run", "a library ended the process: out of memory or threads");
    _exit(EXIT_STOPPED);
}

static void *leave(void *arg)
{
    pthread_exit(arg);
}

static void no_unwinder(int sig)
{
    (void)sig;
    mem_none("libgcc_s");
}

/* The first pthread_exit() of a process loads libgcc_s, and aborts when it cannot. libgomp calls it when memory may
 * be short already: do it here, where that can be said. */
static void load_unwinder(void)
{
    pthread_t thread;
    struct sigaction before, say = {.sa_handler = no_unwinder};
    sigaction(SIGABRT, &say, &before);
    if (pthread_create(&thread, NULL, leave, NULL) == 0)
        pthread_join(thread, NULL);
    sigaction(SIGABRT, &before, NULL);
}

void exit_guard_on(void)
{
    static bool registered;
    if (!registered) {
        load_unwinder();
        registered = atexit(at_exit) == 0;
    }
    atomic_store(&on, true);
}

void exit_guard_off(void)
{
    atomic_store(&on, false);
}
