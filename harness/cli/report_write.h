/* `attest report` proper: from JSON lines to the three files. */
#ifndef ATTEST_REPORT_WRITE_H
#define ATTEST_REPORT_WRITE_H

/* argv[0] is "report". Returns the exit code. */
int command_report_write(int argc, char **argv);
#endif
