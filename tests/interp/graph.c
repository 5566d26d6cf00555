/* A legal graph by the interpreter of the compiler, its outputs alone. */
#include "tests/interp/interp.h"

enum eval_status graph_eval(struct graph *g, const struct tensor *in, struct tensor *out, struct arena *arena,
                            const char **text)
{
    struct tensor **wanted = NEW_ARRAY(arena, struct tensor *, g->values.n);
    for (uint32_t i = 0; i < g->outputs.n; i++)
        wanted[g->outputs.data[i].value.i] = &out[i];
    enum eval_status status = graph_eval_values(g, in, wanted, arena, text);
    for (uint32_t i = 0; i < g->outputs.n; i++) /* one value may be several outputs */
        out[i] = *wanted[g->outputs.data[i].value.i];
    return status;
}
