/* Interprets models on request: the reference interpreter as a program, for the suite runner beside this file. */
#ifndef MCC_TESTS_LEGALIZE_SERVE_H
#define MCC_TESTS_LEGALIZE_SERVE_H

#include <stdio.h>

/* Answers requests from in until it ends (format: serve.c); the exit status. */
int serve(FILE *in, FILE *out);

#endif
