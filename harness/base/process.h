/* Another program run to its end, with what it prints. */
#ifndef ATTEST_PROCESS_H
#define ATTEST_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

struct process_options {
    const char *directory;     /* where it runs; NULL: here */
    double timeout_s;          /* then its process group is killed; 0: none */
    const volatile bool *stop; /* the same when it becomes true; may be NULL */
};
struct process_result {
    int exit_code; /* -1 when a signal ended it */
    int signal;
    bool timed_out, stopped;
    char *output, *errors; /* standard output and error, NUL-terminated; owned by the caller */
};

/* argv[0] is looked up in PATH; standard input is empty. False, with a message, if it could not be
 * started; exit code 127 from a program that is not there counts as that. */
bool process_run(const char *const argv[], const struct process_options *options,
                 struct process_result *result, char *error, size_t error_size);
void process_result_free(struct process_result *result);
#endif
