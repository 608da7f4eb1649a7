/* bench --against torch: PyTorch does the same work, timed by mk/torch_peers.py in a process of its
 * own. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "harness/cli/bench.h"
#include "harness/session/session.h"

/* mk/torch_peers.py, beside the build folder of this program. */
static bool find_script(char *path, size_t size)
{
    char dir[PATH_MAX];
    return session_module_dir("cuda", dir, sizeof dir) &&
           (size_t)snprintf(path, size, "%s/../../../mk/torch_peers.py", dir) < size;
}

/* Starts python3 with the script; its output is to be read from *out. -1 if that is impossible. */
static pid_t start(char *const arguments[], int *out)
{
    int ends[2];
    if (pipe(ends)) return -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execvp("python3", arguments);
        fprintf(stderr, "attest: python3: %s\n", strerror(errno));
        _exit(EXIT_UNAVAILABLE);
    }
    close(ends[1]);
    if (pid < 0) close(ends[0]);
    *out = ends[0];
    return pid;
}

static int exit_code_of(pid_t pid)
{
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return EXIT_INFRA;
    return WEXITSTATUS(status) == 0                  ? EXIT_PASS
           : WEXITSTATUS(status) == EXIT_UNAVAILABLE ? EXIT_UNAVAILABLE
                                                     : EXIT_INFRA;
}

int bench_torch_probe(void)
{
    char script[PATH_MAX + 64], probe[] = "--probe", python[] = "python3";
    char *arguments[] = {python, script, probe, NULL};
    int out = -1;
    if (!find_script(script, sizeof script)) return EXIT_INFRA;
    if (access(script, R_OK)) {
        fprintf(stderr, "attest: %s: %s\n", script, strerror(errno));
        return EXIT_UNAVAILABLE;
    }
    pid_t pid = start(arguments, &out);
    if (pid > 0) close(out);
    int code = exit_code_of(pid);
    if (code != EXIT_PASS)
        fprintf(stderr, "attest: --against torch needs python3 with PyTorch that sees the GPU\n");
    return code;
}

static void print_json(const struct measured *m, double limit_us, const struct earlier_time *peer)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "case", m->text);
    cJSON_AddStringToObject(j, "peer", peer->peer);
    cJSON_AddStringToObject(j, "device", peer->device);
    if (peer->skipped[0]) {
        cJSON_AddStringToObject(j, "skipped", peer->skipped);
    } else {
        cJSON_AddNumberToObject(j, "median_us", peer->median_us);
        cJSON_AddNumberToObject(j, "least_us", peer->least_us);
        cJSON_AddNumberToObject(j, "most_us", peer->most_us);
        cJSON_AddNumberToObject(j, "of_attest", peer->median_us / m->time.median_us);
        cJSON_AddNumberToObject(j, "times_limit", peer->median_us / limit_us);
    }
    char *text = cJSON_PrintUnformatted(j);
    if (text) puts(text);
    cJSON_free(text);
    cJSON_Delete(j);
}

static void print_table_row(const char *name, double median, double least, double most, double own,
                            double limit)
{
    printf("  %-34s %10.2f %10.2f %10.2f %9.2f %8.2f\n", name, median, least, most, median / own,
           median / limit);
}

static void print_item(const struct bench_run *b, const struct measured *m,
                       const struct earlier *peers)
{
    double limit_us = bench_limit_of(&m->work, &b->rates).us;
    if (!b->options->json) {
        printf("%s\n", m->text);
        print_table_row("attest", m->time.median_us, m->time.least_us, m->time.most_us,
                        m->time.median_us, limit_us);
    }
    for (uint32_t i = 0; i < peers->count; i++) {
        const struct earlier_time *peer = &peers->times[i];
        if (!peer->peer[0] || strcmp(peer->text, m->text)) continue;
        if (b->options->json)
            print_json(m, limit_us, peer);
        else if (peer->skipped[0])
            printf("  %-34s %s\n", peer->peer, peer->skipped);
        else
            print_table_row(peer->peer, peer->median_us, peer->least_us, peer->most_us,
                            m->time.median_us, limit_us);
    }
}

static int read_peers(char *const arguments[], struct earlier *peers)
{
    char error[512];
    int out = -1;
    pid_t pid = start(arguments, &out);
    FILE *lines = pid > 0 ? fdopen(out, "r") : NULL;
    bool fine = lines && earlier_read(lines, "torch_peers.py", peers, error, sizeof error);
    if (lines) fclose(lines);
    int code = exit_code_of(pid);
    if (code != EXIT_PASS) return code;
    if (lines && !fine) fprintf(stderr, "attest: %s\n", error);
    return fine ? EXIT_PASS : EXIT_INFRA;
}

int bench_torch(const struct bench_run *b)
{
    static char *arguments[BENCH_CASES_MAX + 3];
    char script[PATH_MAX + 64], python[] = "python3";
    struct earlier peers = {NULL, 0};
    int n = 0;
    if (!find_script(script, sizeof script)) return EXIT_INFRA;
    arguments[n++] = python;
    arguments[n++] = script;
    for (uint32_t i = 0; i < b->count; i++)
        if (b->items[i].fine) arguments[n++] = (char *)b->items[i].text;
    arguments[n] = NULL;
    int code = read_peers(arguments, &peers);
    if (code == EXIT_PASS && !b->options->json)
        printf("\n  %-34s %10s %10s %10s %9s %8s\n", "the same work", "median us", "least", "most",
               "x attest", "x limit");
    for (uint32_t i = 0; i < b->count && code == EXIT_PASS; i++)
        if (b->items[i].fine) print_item(b, &b->items[i], &peers);
    earlier_free(&peers);
    return code;
}
