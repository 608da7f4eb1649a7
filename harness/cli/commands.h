/* The commands of the program; each returns the exit code. argv[0] is the command's name. */
#ifndef ATTEST_COMMANDS_H
#define ATTEST_COMMANDS_H

#include <stdbool.h>

int command_verify(int argc, char **argv);
int command_run(int argc, char **argv);
int command_list(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_minimize(int argc, char **argv);
int command_broken(int argc, char **argv);
int command_fences(int argc, char **argv);
int command_fuzz(int argc, char **argv);
int command_judge(int argc, char **argv);
int command_report(int argc, char **argv);
int command_bisect(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_replay(int argc, char **argv);
/* The GPU backend tried on this machine's device, without any kernel of the project. */
int command_selftest_cuda(int argc, char **argv);
/* Whether --help is among the arguments. */
bool wants_help(int argc, char **argv);
#endif
