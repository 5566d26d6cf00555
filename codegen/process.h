/* One worker process: its start, its processor time, its end (process.c). */
#pragma once

#include <sys/types.h>

#include "codegen/codegen.h"

struct process {
    pid_t pid; /* 0: none, or its end was waited for */
    double began; /* seconds of the monotonic clock */
    double used; /* seconds of processor time, when process_used or process_end was called last */
};

/* `self --worker` with the descriptor as standard input and output. 0, or what errno would say. */
int process_start(struct process *, const struct codegen_options *, int fd);
/* Processor time of all its threads so far. */
double process_used(struct process *);
void process_kill(const struct process *);
/* Waits for the end of a process whose connection is closed; its status. One that does not end within some seconds is
 * killed: it is stopped, or worse. */
int process_end(struct process *);
