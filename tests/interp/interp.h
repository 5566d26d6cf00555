/* What tests compare machine code and passes with: the interpreter of the loop IR, the executable definition of its
 * statements; legal graphs run whole. */
#ifndef MCC_TESTS_INTERP_INTERP_H
#define MCC_TESTS_INTERP_INTERP_H

#include "ir/eval/interpreter.h"
#include "ir/loop/loop.h"

struct lbuffer {
    void *data;
    int64_t bytes;
};
struct linterp_arg {
    struct lbuffer buffer;
    int64_t index;
};
struct linterp_host { /* what programs need from outside; NULL members: launch and call fail */
    void *user;
    int (*launch)(void *user, const char *kernel, const struct linterp_arg *, uint32_t n, int64_t count);
    int64_t (*call)(void *user, const char *name, const struct linterp_arg *, uint32_t n, bool *failed);
};
/* code 0, a MCC_E_*, or -100: a broken rule (out of bounds, undefined value) */
struct linterp_result {
    int code;
    uint32_t node;
    const char *text;
};
/* Runs a verified f; kernels over parallel indices [begin, end). Every access is checked against the buffer's bytes
 * and, where `align` was promised, against alignment. */
struct linterp_result lf_interpret(const struct lfunc *, const struct linterp_arg *args, int64_t begin, int64_t end,
                                   const struct linterp_host *);

/* As graph_eval_values, of the outputs. */
enum eval_status graph_eval(struct graph *, const struct tensor *in, struct tensor *out, struct arena *arena,
                            const char **text);

#endif
