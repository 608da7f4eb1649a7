#include "harness/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/base/error_text.h"

enum { NOT_STARTED = 127 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void child(const char *const argv[], const char *directory, int output, int errors)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL);
    if (null < 0 || dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0)
        _exit(NOT_STARTED);
    if (directory && chdir(directory) != 0) _exit(NOT_STARTED);
    execvp(argv[0], (char *const *)argv);
    _exit(NOT_STARTED);
}

/* Waits; kills the whole group when the time is over or a stop is wished for. */
static int wait_for(pid_t pid, const struct process_options *o, struct process_result *r)
{
    static const struct timespec pause = {0, 10000000};
    double end = now() + o->timeout_s;
    int status = 0;
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR)) return status;
        r->timed_out = o->timeout_s > 0 && now() >= end;
        r->stopped = o->stop && *o->stop;
        if (r->timed_out || r->stopped) break;
        nanosleep(&pause, NULL);
    }
    kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

static char *read_back(int file)
{
    struct stat st;
    if (fstat(file, &st) != 0) return NULL;
    size_t size = (size_t)st.st_size, used = 0;
    char *text = malloc(size + 1);
    while (text && used < size) {
        ssize_t n = pread(file, text + used, size - used, (off_t)used);
        if (n <= 0) break;
        used += (size_t)n;
    }
    if (text) text[used] = 0;
    return text;
}

bool process_run(const char *const argv[], const struct process_options *o,
                 struct process_result *r, char *error, size_t size)
{
    memset(r, 0, sizeof *r);
    int output = memfd_create("output", MFD_CLOEXEC), errors = memfd_create("errors", MFD_CLOEXEC);
    pid_t pid = output < 0 || errors < 0 ? -1 : fork();
    if (pid == 0) child(argv, o->directory, output, errors);
    if (pid > 0) {
        setpgid(pid, pid); /* the child does so too: whoever comes first */
        int status = wait_for(pid, o, r);
        r->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        r->output = read_back(output);
        r->errors = read_back(errors);
    }
    int cause = errno;
    if (output >= 0) close(output);
    if (errors >= 0) close(errors);
    if (pid < 0)
        return error_text(error, size, "%s cannot be started: %s", argv[0], strerror(cause));
    bool fine = r->output && r->errors && r->exit_code != NOT_STARTED;
    if (fine) return true;
    process_result_free(r);
    return error_text(error, size, "%s cannot be started", argv[0]);
}

void process_result_free(struct process_result *r)
{
    free(r->output);
    free(r->errors);
    r->output = r->errors = NULL;
}
