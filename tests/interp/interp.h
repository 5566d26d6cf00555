/* What tests compare machine code and passes with: the interpreter of the loop IR; legal graphs run whole. */
#ifndef MCC_TESTS_INTERP_INTERP_H
#define MCC_TESTS_INTERP_INTERP_H

#include "ir/eval/interpreter.h"
#include "ir/loop/interp/interp.h"

/* As graph_eval_values, of the outputs. */
enum eval_status graph_eval(struct graph *, const struct tensor *in, struct tensor *out, struct arena *arena,
                            const char **text);

#endif
