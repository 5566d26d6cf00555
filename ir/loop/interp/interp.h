/* The interpreter of the loop IR, the executable definition of its statements: what machine code (mcc prove --machine)
 * and passes (tests) are compared with. */
#pragma once

#include "ir/loop/loop.h"

struct lbuffer {
    void *data;
    int64_t bytes;
};
struct linterp_arg {
    struct lbuffer buffer;
    int64_t index;
};
/* What programs need from outside, what callers observe, and what the target decides. NULL members: launch and call
 * fail, loads and stores are not observed. */
struct linterp_host {
    void *user;
    int (*launch)(void *user, const struct lstmt *launch, const struct linterp_arg *, uint32_t n, int64_t count);
    int64_t (*call)(void *user, const char *name, const struct linterp_arg *, uint32_t n, bool *failed);
    /* An element of an argument's memory, no local, is about to be read or written. */
    void (*load)(void *user, enum elem, void *at);
    void (*store)(void *user, enum elem, void *at);
    /* Running error analysis: by how much an element that is read is off, and what is written. NULL: not asked for.
     * Results that nothing bounds are off by infinity. */
    double (*read_error)(void *user, enum elem, const void *at);
    void (*write_error)(void *user, enum elem, void *at, double error);
    int64_t work; /* lanes of statements that may be computed, about; 0: any number */
    bool unfused; /* L_FMA of f32 and f64 rounds twice */
};
enum { LINTERP_BROKEN = -100 /* a rule: out of bounds, undefined value */, LINTERP_ENDED = -101 /* work was done */ };
/* code 0, a MCC_E_*, or one of these */
struct linterp_result {
    int code;
    uint32_t node;
    const char *text;
    int64_t work; /* that was done */
};
/* Runs a verified f; kernels over parallel indices [begin, end). Every access is checked against the buffer's bytes
 * and, where `align` was promised, against alignment. */
struct linterp_result lf_interpret(const struct lfunc *, const struct linterp_arg *args, int64_t begin, int64_t end,
                                   const struct linterp_host *);

/* By how much a constant is off that stands for what was rounded to it: 0 if it has few bits. */
double loop_constant_error(enum elem, double x);
