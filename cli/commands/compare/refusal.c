/* Draws that a run refuses, in the interpreter (docs/reference/proof.md). */
#include "cli/commands/compare/refusal.h"

/* Each refused draw costs as many elements, however few it has: so there are 4096 at most. And the bytes of a block for
 * each byte of the network's values, which padded and packed values may need. */
enum { REFUSAL_EACH = 1 << 12, REFUSAL_PACKED = 64 };
/* A draw that runs too long: what the interpreter may compute of it, and how many may be drawn again. */
enum { REFUSAL_ENDLESS = 1 << 18, REFUSAL_ENDLESS_MOST = 64 };

struct refusal {
    struct prove *p;
    bool takes; /* the network takes the inputs */
};

static bool ask_network(void *user)
{
    struct refusal *r = user;
    struct prove *p = r->p;
    struct graph *g = p->legal;
    struct arena *arena = &p->draw_apart;
    struct tensor *in = NEW_ARRAY(arena, struct tensor, g->inputs.n + 1),
                  **want = NEW_ARRAY(arena, struct tensor *, g->values.n + 1);
    for (uint32_t i = 0; i < g->inputs.n; i++)
        if (!file_tensor_widen(p->apart, &p->run.s.in[i], &in[i]))
            return false;
    r->takes = graph_eval_values(g, in, want, arena, NULL) == EVAL_OK;
    return true;
}

static void end_ask(void *user)
{
    struct refusal *r = user;
    r->p->apart->eval_left = NULL;
}

/* The code may lack memory where the network takes a lot, too. spent: elements that the interpreter has computed. */
static bool may_lack(const struct prove *p, int64_t spent)
{
    const double bytes = (double)spent * sizeof(int64_t) + (double)p->fed;
    const size_t asked = p->largest > PROVE_BY_DATA ? p->largest : PROVE_BY_DATA;
    return p->code == MCC_E_NOMEM && bytes * REFUSAL_PACKED > (double)asked;
}

void refusal_judge(struct prove *p)
{
    struct refusal r = {.p = p};
    const bool endless = p->code == MCC_E_CANCELLED;
    int64_t before = p->refusals -= REFUSAL_EACH, few = REFUSAL_ENDLESS;
    if (endless && p->endless++ == REFUSAL_ENDLESS_MOST)
        p->now->ended = PROVE_ENDLESS;
    if (p->now->ended || before < 0)
        return;
    p->apart->unwind = NULL; /* an end there is none here: nothing is known of the draw then */
    p->apart->eval_left = endless ? &few : &p->refusals;
    if (!run_guarded(p->apart, ask_network, end_ask, &r))
        return;
    if (p->code == MCC_OK && !r.takes)
        p->now->ended = "its code takes inputs that the network refuses";
    if (p->code != MCC_OK && r.takes && !may_lack(p, before - p->refusals))
        p->now->ended = arena_printf(&p->run.c.ctx->session, "its code refuses inputs that the network takes: %s",
                                     endless ? PROVE_ENDLESS : p->run.s.error.text);
}
