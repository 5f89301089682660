/* kernels/team.h - threads that share out the parts of an op.
 *
 * What:   a team is made once: its caller and threads that wait for work, a moment awake, then asleep. team_run() hands
 *         out parts by one atomic counter; whoever is awake takes the next, the caller among them. It waits for
 *         the parts that were taken, never for a thread that has not come: with more threads than free CPUs the
 *         caller does most of the work itself, and nothing stands still.
 * Rules:  1. Which thread takes which part is chance: a part must give the same bytes whoever computes it.
 *         2. Ops that a part calls are not shared out again; each part brings its own scratch for them.
 *         3. Nothing is allocated between team_new() and team_free().
 *         4. After fork() the child has the caller only; it goes on alone.
 * Thread: the thread that called team_use() calls team_run(); a team belongs to one thread at a time.
 * Source: spin, then sleep in the kernel: Linux, futex(2).
 */
#ifndef QUIRE_KERNELS_TEAM_H
#define QUIRE_KERNELS_TEAM_H

struct team;

/* A team of n threads, the caller among them. Where the system refuses some, the team is smaller. NULL: no memory. */
struct team *team_new(int n);
/* No thread may be using it. */
void team_free(struct team *t);
int team_size(const struct team *t);

/* Ops that this thread calls from now on are shared out over t; NULL: it computes alone, as at its start. */
void team_use(struct team *t);
/* Threads of the team that this thread uses, at least 1. */
int team_threads(void);

/* Items [begin, end) of a job. thread: 0 .. team_threads() - 1, a number that no other running part has. */
typedef void team_part_fn(void *arg, int begin, int end, int thread);
/* fn over all of [0, n), `grain` items at a time; returns when all are done. Jobs of one part, and all jobs of a
 * thread without a team, are done by the caller. */
void team_run(int n, int grain, team_part_fn *fn, void *arg);

#endif
