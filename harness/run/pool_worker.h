/* Inside the pool: the processes behind its workers, and the pipes to them. */
#ifndef ATTEST_POOL_WORKER_H
#define ATTEST_POOL_WORKER_H

#include <sys/types.h>

#include "harness/run/pool.h"

/* What a worker sends back. */
struct message {
    struct result result;
    bool healthy; /* the worker can take another job */
};

struct process {
    pid_t pid;       /* 0: not running */
    uint32_t workers; /* that it serves, each by a thread where there are several */
    uint32_t number; /* counts the processes of a run */
    bool leaving;    /* takes no more jobs */
};

struct worker {
    struct process *process; /* NULL: none */
    int jobs, results;       /* parent's ends */
    bool busy;
    uint64_t job;
    double deadline;
    size_t received; /* bytes of the message that have arrived */
    struct message *message;
};

enum arrival { ARRIVED, ARRIVING, GONE };

/* Starts one process for the n workers at w. all[0..n_all) are the pool's: the child closes the
 * pipes of those that run already. False if the machine gives no pipe or process. */
bool process_start(const struct pool_config *config, struct process *p, struct worker *w, uint32_t n,
                   const struct worker *all, uint32_t n_all);
/* Waits for the process to leave, killed first or by its own. Its workers among all[] get no
 * process; what they sent is still to be read: worker_receive, then worker_close. Returns the wait
 * status. */
int process_end(struct process *p, bool kill_it);
/* Sends a job to an idle worker. */
void worker_give(struct worker *w, uint64_t job, double deadline);
/* Reads what has come of the worker's message; waits for some. */
enum arrival worker_receive(struct worker *w);
/* Closes the pipe by which jobs come: the worker leaves when it is done. */
void worker_dismiss(struct worker *w);
void worker_close(struct worker *w);
/* Settings of the allocator for a process that does one case after another. */
void worker_keep_memory(void);
#endif
