/* mcc prove: the compiled network against the network, by randomised identity testing (docs/reference/proof.md).
 *
 * The network is compiled as always, but before code generation each kernel's f32 becomes GF(q) x GF(p)
 * (ir/loop/field.c), and so do the constants (ir/eval/field.h); sizes, layouts, the plan and the program are those of
 * the artifact. It runs on drawn residues, and so do, in the reference interpreter, the graph after legalization, which
 * no pass has changed, end to end, and the graph that the kernels were made of, kernel by kernel, each from what the
 * earlier ones have stored. Equality is exact: there is no tolerance.
 */
#include <malloc.h>
#include <math.h>

#include "cli/commands/artifact/artifact.h"
#include "cli/commands/artifact/session.h"
#include "cli/commands/command.h"
#include "cli/commands/compare/chance.h"
#include "cli/commands/compare/code_check.h"
#include "cli/commands/compare/control.h"
#include "cli/commands/compare/prove.h"
#include "cli/commands/compare/refusal.h"
#include "cli/commands/compare/sharing.h"
#include "cli/commands/compare/sizes.h"
#include "cli/commands/compare/single.h"
#include "cli/commands/temporary.h"
#include "cli/library/options/cpu.h"
#include "cli/library/options/targets.h"
#include "ir/eval/shared.h"
#include "ir/eval/field.h"
#include "ir/expr/expr.h"
#include "ir/ops/field.h"

enum { KEPT_BYTES = 1 << 30 }; /* of free memory, which malloc keeps */
/* Draws of larger sizes that data decides, in turn, that may add nothing: so many for small inputs, so many for others.
 * And the numbers that most floats are from which integers are made. */
enum {
    MANY_MOST = 1024,
    MANY_LEAST = 32,
    MANY_ELEMENTS = 1 << 19,
    COUNTS_MOST = 16,
    QUARTERS_MOST = 8,
    QUARTERS_LEAST = 8,
    COMPARED_LEAST = 16,
    LARGER_LEAST = 16
};
/* Bytes that runs of larger sizes ask for, as long as integers have shown few values. */
#define MANY_BYTES ((uint64_t)1 << 28)
/* And where these have shown enough: memory is rounded up, so that a wrong size of it shows with many elements only. */
#define LARGER_BYTES ((uint64_t)1 << 20)
/* With so many bytes of weights, draws after PROVE_CALLS judge only kernels that compute with integers. */
#define LARGE_WEIGHTS ((uint64_t)1 << 24)
/* ---- one draw ---------------------------------------------------------------------------------------------------- */

/* Draws of few floats in which elements differ, then as many for single kernels in which they are equal for up to
 * 2^TIED_BITS; and a draw that is mostly 0. */
enum { TIED_EACH = 4, TIED_BITS = 10, TIED_ZEROS = 3 };

/* One of few floats, a quarter of them constants that the network asks others to be equal to. Of each eight draws one
 * has -inf only, as a maximum of many elements is -inf in no other. */
static uint32_t draw_tied(const struct number_list *equal, uint8_t read_by, uint64_t r, uint32_t draw)
{
    static const uint32_t special[] = {FIELD_PLUS_INF, FIELD_MINUS_INF, FIELD_NAN};
    static const uint8_t other[] = {64, 16, 4, 2}; /* of 64, that may be another one than 0 */
    if (read_by & PROVE_TESTS && draw % 8 == 7)
        return FIELD_MINUS_INF;
    if (read_by & PROVE_TESTS && r >> 62 == 0)
        return special[r % (COUNT_OF(special) - !!(read_by & PROVE_ORDERS))];
    if (equal->n && (r >> 16) % 4 == 0)
        return (uint32_t)equal->data[(r >> 24) % equal->n];
    return field_of_integer((r >> 8) % 64 < other[draw % COUNT_OF(other)] ? (int64_t)(r % 5) - 2 : 0);
}

void prove_draw_tied(const struct prove *p, value_id v, enum elem elem, void *data, size_t n, uint64_t *state,
                     uint32_t draw)
{
    const bool runs = p->run.keep && draw % (2 * TIED_EACH) >= TIED_EACH;
    uint64_t left = 0;
    uint32_t x = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = integer_random(state);
        if (!runs || !left--) {
            x = draw_tied(&p->integers.floats, p->special ? p->read_by[v.i] : 0, r,
                          runs && r >> 62 < 2 ? TIED_ZEROS : draw);
            left = (r >> 32) % ((uint64_t)1 << ((r >> 56) % TIED_BITS));
        }
        field_store(elem, x, false, (char *)data + i * elem_size(elem));
    }
}

/* The first draws that only choices ask for have floats far from what maxima begin with, on one side of it. */
static bool is_apart(const struct prove *p)
{
    return p->choosing % 4 == 1 || p->choosing % 4 == 2;
}

static uint32_t draw_apart(const struct prove *p, uint64_t r)
{
    const int64_t x = FIELD_SMALL / 4 + (int64_t)(r % (FIELD_SMALL / 4));
    return field_of_integer(p->choosing % 4 == 1 ? -x : x);
}

/* A larger number that decides a size. Half of floats are quarters, as scales are. */
static void put_many(struct file_tensor *t, uint64_t at, uint64_t r)
{
    const int64_t x = integer_many(r);
    char *to = (char *)t->data + at * elem_size(t->elem);
    if (!field_form(t->elem))
        elem_from_i64(t->elem, x, to);
    else
        field_store(t->elem, r >> 63 ? field_of((double)(r % QUARTERS_MOST + 1) / 4) : field_of_integer(x), false, to);
}

/* A float that decides sizes or positions: a whole number, or in some draws mostly a few quarters, whose quotients are
 * small fractions. */
static uint32_t draw_deciding(uint64_t r, uint32_t draw, uint32_t attempt)
{
    const int64_t few = (int64_t)((r >> 8) % (QUARTERS_MOST + QUARTERS_LEAST + 1)) - QUARTERS_LEAST,
                  quarters = attempt == 0 && r >> 62 == 3 ? few * 4 : few;
    return draw % 3 && r >> 62 && attempt < INTEGER_FEW / 2 ? field_of((double)quarters / 4)
                                                            : field_of_integer(integer_deciding(r, attempt));
}

/* One number of all that decide sizes is a larger one. */
static void draw_many(struct prove *p, uint64_t *state)
{
    uint64_t n = 0;
    for (int put = 0; put < 2; put++) {
        uint64_t at = put && n ? integer_random(state) % n : 0;
        for (uint32_t i = 0; i < p->run.s.api->n_in && (!put || n); i++) {
            struct file_tensor *t = &p->run.s.in[i];
            const bool form = field_form(t->elem), decides = p->integers.role[p->legal->inputs.data[i].value.i].decides;
            const uint64_t own = t->size / elem_size(t->elem);
            if (!decides || elem_bits(t->elem) < 8 || (!form && !strchr("IU", elem_class(t->elem))))
                continue;
            if (put && at < own) {
                put_many(t, at, integer_random(state));
                return;
            }
            n += put ? 0 : own;
            at -= put ? own : 0;
        }
    }
}

/* Residues for floats, integers by their roles; everything else as mcc run draws it. False: there are no integers. */
static bool draw_inputs(struct prove *p, uint32_t draw, uint32_t attempt)
{
    uint64_t state = draw + 1 + ((uint64_t)attempt << 32);
    bool any = false;
    p->fed = 0;
    for (uint32_t i = 0; i < p->run.s.api->n_in; i++) {
        struct file_tensor *t = &p->run.s.in[i];
        p->fed += t->size;
        const struct integer_role *role = &p->integers.role[p->legal->inputs.data[i].value.i];
        const bool whole = elem_bits(t->elem) >= 8, integers = strchr("IU", elem_class(t->elem)) && whole;
        const size_t size = elem_size(t->elem);
        any |= integers || role->decides;
        if (integers)
            integers_draw(t, role, &p->integers, p->compared, &state, draw, attempt);
        else if (!whole || !field_form(t->elem))
            file_tensor_random(t, draw * p->run.s.api->n_in + i + 1);
        const bool tied = p->tied && !role->decides && whole && field_form(t->elem);
        if (tied)
            prove_draw_tied(p, p->run.c.graph->inputs.data[i].value, t->elem, t->data, t->size / size, &state, draw);
        for (size_t k = 0; !tied && k + size <= t->size && whole && field_form(t->elem); k += size) {
            const uint64_t r = integer_random(&state);
            const bool counts = role->counts && r >> 62 != 0;
            field_store(t->elem,
                        is_apart(p) && !role->decides ? draw_apart(p, r)
                        : role->decides               ? draw_deciding(r, draw, attempt)
                        : counts                      ? field_of_integer((int64_t)(r % COUNTS_MOST) - COUNTS_MOST / 2)
                                                      : (uint32_t)(r % FIELD_N),
                        false, (char *)t->data + k);
        }
    }
    const uint32_t larger = !p->larger ? 0 : integer_random(&state) % 4 ? 1 : 2; /* of two the smaller one may decide */
    for (uint32_t i = 0; i < larger; i++)
        draw_many(p, &state);
    return any;
}

/* The interpreter has computed v: compared with what the kernel stored, from which it goes on. */
static void on_part(void *user, value_id v, const struct tensor *t)
{
    struct prove *p = user;
    const struct tensor *got = p->run.got[v.i];
    bool same = got && t->kind == TYPE_TENSOR && t->elem == got->elem && t->rank == got->rank;
    for (int32_t k = 0; same && k < t->rank; k++)
        same = t->dims[k] == got->dims[k];
    if (!got && t->kind == TYPE_TENSOR && tensor_count(t) == 0 &&
        p->makes[v.i]) /* nothing was launched for no elements */
        p->now->of[p->makes[v.i] - 1].compared++;
    if (!same)
        return;
    struct verdict *d = &p->now->of[p->run.maker[v.i]];
    const size_t size = elem_size(t->elem);
    int64_t n = tensor_count(t), wrong = 0;
    for (int64_t i = 0; i < n; i++)
        wrong += memcmp((const char *)t->data + (size_t)i * size, (const char *)got->data + (size_t)i * size, size) !=
                 0;
    if (wrong && !d->differs)
        d->elements = n, d->wrong = wrong;
    d->differs += wrong > 0;
    d->compared++;
    d->here = n > d->here ? n : d->here;
    if (wrong)
        memcpy(t->data, got->data, (size_t)n * size);
}

/* Does what a draw shows of v, a result of n, depend on the node's operand? */
static bool reads_operand(const struct node *n, value_id v)
{
    return (n->op == OP_ARGREDUCE || n->op == OP_ARGWINDOW || n->op == OP_ISINF || n->op == OP_SORT) &&
           v.i == chance_told(n).i;
}

/* What the draw shows of v. Of a loop's values the last trip's is left: so one draw counts once. */
void prove_count(struct prove *p, value_id v)
{
    const struct graph *g = p->run.c.graph;
    const struct node *n = value_node(g, v);
    const struct tensor *t = p->want[v.i], *x = NULL;
    if (!t || !t->data || !p->integers.watched[v.i] || p->given[v.i])
        return;
    integers_count(&p->integers, &p->run.c.ctx->session, v, t);
    if (n && reads_operand(n, v) && !value_is_const(g, v))
        x = p->given[n->in[0].i] ? p->given[n->in[0].i] : p->want[n->in[0].i];
    x = x && !x->data ? p->run.got[n->in[0].i] : x; /* the interpreter went on from what was stored */
    if (!x || !x->data)
        return;
    if (n->op == OP_ISINF)
        chance_infinite(x, &p->infinite[2 * v.i]);
    else
        p->ties[v.i] += (double)chance_ties(g, n, x, t);
}

static void want_value(struct prove *p, value_id v)
{
    if (v.i && !p->want[v.i])
        p->want[v.i] = NEW(&p->draw, struct tensor);
}

void prove_want(struct prove *p, value_id v)
{
    const struct node *n = value_node(p->run.c.graph, v);
    want_value(p, v);
    if (n && reads_operand(n, v) && value_node(p->run.c.graph, n->in[0]))
        want_value(p, n->in[0]);
}

static bool interpret(struct prove *p)
{
    struct context *ctx = p->run.c.ctx;
    struct graph *g = p->run.c.graph;
    struct tensor *in = NEW_ARRAY(&p->draw, struct tensor, g->inputs.n + 1);
    p->want = NEW_ARRAY(&p->draw, struct tensor *, g->values.n + 1);
    p->makes = NEW_ARRAY(&p->draw, uint32_t, g->values.n + 1);
    p->given = NEW_ARRAY(&p->draw, const struct tensor *, g->values.n + 1);
    for (uint32_t i = 0; i < g->inputs.n; i++) {
        if (!file_tensor_widen(ctx, &p->run.s.in[i], &in[i]))
            return false;
        integers_count(&p->integers, &ctx->session, g->inputs.data[i].value, &in[i]);
        p->given[g->inputs.data[i].value.i] = &in[i];
    }
    for (uint32_t i = 1; i < g->values.n; i++) {
        if (p->integers.watched[i] && !p->given[i])
            prove_want(p, (value_id){i}); /* also what a loop gives its body */
    }
    for (uint32_t i = 0; i < prove_kernels(p); i++) {
        const struct kernel *k = prove_kernel(p, i);
        for (uint32_t j = 0; j < k->outs.n && k->region.i == 1; j++) {
            want_value(p, k->outs.data[j]);
            p->makes[k->outs.data[j].i] = i + 1;
        }
        if (k->kind == KERNEL_OPAQUE)
            want_value(p, k->outs.data[0]);
    }
    const char *text = "";
    if (graph_eval_watched(g, in, p->want, on_part, p, &p->draw, &text) != EVAL_OK) {
        p->now->interpreted = text && *text ? arena_strdup(&ctx->session, text) : "the interpreter failed";
        return true;
    }
    for (uint32_t i = 1; i < g->values.n; i++)
        prove_count(p, (value_id){i});
    return true;
}

/* Has each output had elements, except for those that have none at any size? */
static bool are_filled(const struct prove *p)
{
    const struct graph *g = p->legal;
    bool all = true;
    for (uint32_t i = 0; i < g->outputs.n; i++)
        all &= p->now->filled[i] || chance_empty(g, g->outputs.data[i].value);
    return all;
}

/* The graph after legalization, and the outputs of the run. */
static bool check_outputs(void *user)
{
    struct prove *p = user;
    struct graph *g = p->legal;
    struct arena *arena = &p->draw_apart;
    DLManagedTensorVersioned **out = p->out;
    struct tensor *in = NEW_ARRAY(arena, struct tensor, g->inputs.n + 1),
                  **want = NEW_ARRAY(arena, struct tensor *, g->values.n + 1);
    const char *text = "";
    for (uint32_t i = 0; i < g->inputs.n; i++)
        if (!file_tensor_widen(p->apart, &p->run.s.in[i], &in[i]))
            return false;
    for (uint32_t i = 0; i < g->outputs.n; i++)
        want[g->outputs.data[i].value.i] = NEW(arena, struct tensor);
    if (graph_eval_values(g, in, want, arena, &text) != EVAL_OK) {
        p->now->why = arena_strdup(&p->run.c.ctx->session, text && *text ? text : "the interpreter failed");
        return true;
    }
    for (uint32_t i = 0; i < g->outputs.n && !p->now->why; i++) {
        const struct tensor *t = want[g->outputs.data[i].value.i];
        const DLTensor *got = &out[i]->dl_tensor;
        p->now->filled[i] |= tensor_count(t) > 0;
        bool same = got->ndim == t->rank && elem_by_dlpack(got->dtype) == t->elem;
        for (int32_t k = 0; same && k < t->rank; k++)
            same = got->shape[k] == t->dims[k];
        struct file_tensor packed = {.data = t->data, .size = (size_t)tensor_count(t) * elem_size(t->elem)};
        if (elem_bits(t->elem) < 8 && !file_tensor_pack(p->apart, t, &packed)) /* as the port has them */
            return false;
        if (!same || memcmp(packed.data, (const char *)got->data + got->byte_offset, packed.size) != 0)
            p->now->why = arena_printf(&p->run.c.ctx->session, "output '%s' differs", g->outputs.data[i].name);
    }
    p->now->any = are_filled(p);
    return true;
}

static void end_nothing(void *user)
{
    (void)user;
}

/* The sizes of the draw, unless an earlier one had the same. */
static void put_sizes(struct prove *p, struct strbuf *all)
{
    const mcc_api *api = p->run.s.api;
    struct strbuf text;
    bool *named = NEW_ARRAY(&p->draw, bool, api->n_sym + 1);
    strbuf_init(&text, all->arena);
    for (uint32_t i = 0; i < api->n_in; i++)
        for (int32_t d = 0; d < api->in[i].ndim; d++) {
            const mcc_dim *dim = &api->in[i].dims[d];
            if (dim->extent != -1 || dim->symbol < 0 || named[dim->symbol])
                continue;
            named[dim->symbol] = true;
            strbuf_printf(&text, "%s%s=%lld", text.n ? ", " : "", api->sym[dim->symbol].name,
                          (long long)p->run.s.in[i].dims[d]);
        }
    for (uint32_t i = 0; i < p->now->n_sizes; i++)
        if (strcmp(p->now->size[i], text.data ? text.data : "") == 0)
            return;
    if (text.n && p->now->n_sizes < COUNT_OF(p->now->size)) {
        p->now->size[p->now->n_sizes++] = text.data;
        strbuf_printf(all, "%s%s", all->n ? "; " : "", text.data);
    }
}

/* mcc_host.alloc, .release and .event */
static void *on_alloc(void *user, size_t bytes, size_t align)
{
    struct prove *p = user;
    p->largest = bytes > p->largest ? bytes : p->largest;
    if (p->by_data && bytes > PROVE_BY_DATA + PROVE_BY_DATA_EACH * p->fed)
        return NULL;
    p->allocated += bytes;
    return guard_alloc(&p->guard, &p->run.c.ctx->session, bytes, align);
}

static void on_release(void *user, void *data, size_t bytes)
{
    struct prove *p = user;
    (void)bytes;
    guard_release(&p->guard, data);
}

static void on_event(void *user, uint32_t node, int end, uint64_t ns)
{
    struct prove *p = user;
    if (++p->events > PROVE_EVENTS)
        p->run.s.api->cancel(p->run.s.run);
    else
        capture_event(&p->run, node, end, ns);
    single_draw(p);
    if (end && p->run.keep && single_ends(p)) { /* the rest of the network says nothing */
        p->part.ends = true;
        p->run.s.api->cancel(p->run.s.run);
    }
    if (!end && p->events <= PROVE_SPOILED)
        guard_spoil_scratch(p->run.s.run, GUARD_MARK);
}

static void run_drawn(void *user)
{
    struct prove *p = user;
    struct session *s = &p->run.s;
    if (p->part.draw % 2 == 0 || !sharing_run(p))
        p->code = s->api->run_dlpack(s->run, s->in_pointer, p->out, &s->error);
    if (p->part.ends && p->code == MCC_E_CANCELLED)
        p->code = MCC_OK;
}

bool prove_attempt(struct prove *p, uint32_t draw, uint32_t attempt)
{
    arena_release(&p->draw);
    arena_release(&p->draw_apart);
    const bool integers = draw_inputs(p, draw, attempt);
    if (attempt % 2)
        sizing_mend_numbers(&p->sizing, draw);
    p->part.draw = draw;
    p->run.ended = UINT32_MAX;
    p->out = NEW_ARRAY(&p->draw, DLManagedTensorVersioned *, p->run.s.api->n_out + 1);
    p->largest = 0;
    p->events = 0;
    p->part.ends = false;
    capture_begin(&p->run);
    if (p->marks)
        memset(p->marks - FIELD_POLLS, 0, FIELD_POLLS + p->run.c.marks);
    guard_trim(&p->guard, p->resized);
    if (p->resized)
        malloc_trim(0);
    p->resized = false;
    guard_spoil_work(p->run.s.run, GUARD_MARK);
    const int fault = guard_call(p->run.c.ctx, run_drawn, p);
    if (fault)
        p->now->ended = arena_printf(&p->run.c.ctx->session, PROVE_FAULT, fault);
    return integers;
}

static bool compare_draw(struct prove *p, enum drawing how)
{
    p->now->single += how == DRAW_PARTS;
    if (how == DRAW_PARTS)
        return single_compare(p, on_part);
    p->apart->unwind = NULL; /* an end there is no end here, and is said below */
    p->run.c.ctx->shared = p->apart->shared = shared_new(&p->draw);
    bool ok = interpret(p);
    if (ok && !run_guarded(p->apart, check_outputs, end_nothing, p))
        p->now->ended = PROVE_TOO_LARGE;
    p->run.c.ctx->shared = p->apart->shared = NULL;
    verdict_count(p);
    p->now->draws++;
    return ok;
}

void prove_release(struct prove *p)
{
    for (uint32_t i = 0; i < p->run.s.api->n_out; i++)
        if (p->out[i])
            p->out[i]->deleter(p->out[i]);
}

/* Did drawn values replace some of the run's? Then the network says nothing of why the run has ended. */
static bool replaces(const struct prove *p, enum drawing how)
{
    return how == DRAW_PARTS && p->part.asks == PART_TIES;
}

bool prove_draw(struct prove *p, uint32_t draw, enum drawing how)
{
    p->part.gained = false;
    bool again = true; /* integers may be sizes and divisors, which end a run */
    const bool of_sizes = how != DRAW_ALL && p->part.asks == PART_BLOCKS && !p->larger;
    const uint32_t first = p->few      ? INTEGER_FEW
                           : p->larger ? draw * 8 % INTEGER_ATTEMPTS
                           : of_sizes  ? p->part.attempt
                                       : 0;
    const uint32_t step = of_sizes ? INTEGER_EACH : 1,
                   most = of_sizes ? INTEGER_ATTEMPTS / INTEGER_EACH : INTEGER_ATTEMPTS - first;
    for (uint32_t k = 0; again && k < most; k++) {
        const uint32_t attempt = (first + k * step) % INTEGER_ATTEMPTS;
        again = prove_attempt(p, draw, attempt);
        if (of_sizes) /* such numbers serve again */
            p->part.attempt = p->code == MCC_OK ? attempt : 0;
        if (p->code != MCC_OK && !p->now->ended && !replaces(p, how))
            refusal_judge(p);
        again &= p->code != MCC_OK && !p->now->ended;
    }
    if (p->code == MCC_E_CANCELLED && !p->now->ended && !replaces(p, how))
        p->now->ended = PROVE_ENDLESS;
    if (p->now->ended)
        return true;
    if (p->code != MCC_OK)
        return draw >= PROVE_DRAWS || session_error(&p->run.s, "run"); /* sizes that do not go together are left out */
    const bool counts = how == DRAW_ALL || (how == DRAW_PARTS ? single_gains(p) : verdict_gains(p));
    if (counts)
        put_sizes(p, how == DRAW_PARTS ? &p->now->more : &p->now->sizes);
    if (!guard_holds(&p->guard))
        p->now->why = PROVE_BEYOND;
    const bool ok = !counts || compare_draw(p, how);
    prove_release(p);
    if (p->part.again) {
        p->part.again = false;
        p->now->single--;
        single_end(p);
        return single_begin(p) ? prove_draw(p, draw, how) : ok;
    }
    p->part.gained = counts;
    return ok;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* The graph that no pass has changed, in a context of its own. */
static bool legal_graph(struct prove *p, const char *model)
{
    struct options o = *p->run.c.options;
    o.quiet = true;
    o.output = NULL;
    p->apart = context_new();
    if (!p->apart)
        return error_limit(p->run.c.ctx, (src_id){0}, "out of memory");
    p->legal = compile_graph(p->apart, &o, model, terminal_report());
    if (!p->legal)
        return error_internal(p->run.c.ctx, (src_id){0}, "the network was imported once only");
    p->apart->unwind = p->run.c.ctx->unwind;
    p->limits = limits_move(p->legal, &p->run.c.module->known);
    graph_enter_field(p->legal, &p->run.c.constants);
    arena_init(&p->draw, p->run.c.ctx);
    arena_init(&p->draw_apart, p->apart);
    p->run.arena = &p->draw;
    integers_roles(&p->integers, p->legal);
    return true;
}

static bool serves(struct prove *p)
{
    const mcc_api *api = p->run.s.api;
    for (uint32_t i = 0; i < api->n_in + api->n_out; i++) {
        const mcc_port *port = i < api->n_in ? &api->in[i] : &api->out[i - api->n_in];
        if (port->flags & ~(uint64_t)MCC_PORT_DYNAMIC)
            return error_at(p->run.c.ctx, FAIL_USAGE, (src_id){0}, port->name, "only tensors can be compared");
    }
    return !api->state || error_model(p->run.c.ctx, (src_id){0}, "networks with state are not proved yet");
}

/* Larger sizes that data decides: a few, more as long as integers show few values, or loops and branches run that have
 * not run often. */
static bool draw_by_data(struct prove *p)
{
    const uint64_t few = MANY_ELEMENTS / (session_elements(&p->run.s) + 1);
    const uint32_t most = few < MANY_LEAST ? MANY_LEAST : few > MANY_MOST ? MANY_MOST : (uint32_t)few;
    bool ok = true;
    p->larger = true;
    const uint64_t before = p->allocated;
    for (uint32_t draw = 0; ok && draw < INTEGER_MOST && !p->now->ended && p->allocated - before < MANY_BYTES &&
                            ((draw < LARGER_LEAST && p->allocated - before < LARGER_BYTES) ||
                             verdict_lacks_integers(p, draw, 0) || verdict_lacks_ties(p, draw));
         draw++)
        ok = prove_draw(p, 7 * INTEGER_DRAWS + draw, DRAW_ALL);
    for (uint32_t draw = 0, vain = 0; ok && vain < most && !p->now->ended && verdict_lacks(p); draw++) {
        p->part.gained = false;
        ok = prove_draw(p, 2 * INTEGER_DRAWS + draw, DRAW_GAINS);
        vain = p->part.gained ? 0 : vain + 1;
    }
    p->larger = false;
    return ok;
}

bool prove_draw_ties(struct prove *p)
{
    bool ok = true;
    p->tied = true;
    for (uint32_t draw = 0; ok && draw < CHANCE_MOST && !p->now->ended && verdict_lacks_ties(p, draw); draw++)
        ok = prove_draw(p, 4 * INTEGER_DRAWS + draw, DRAW_ALL);
    p->part.asks = PART_TIES;
    for (uint32_t draw = 0; ok && draw < CHANCE_MOST && !p->now->ended && verdict_lacks_ties(p, draw); draw++) {
        p->part.turn = draw;
        ok = !single_begin(p) || prove_draw(p, 9 * INTEGER_DRAWS + draw, DRAW_PARTS);
        single_end(p);
    }
    p->tied = false;
    p->part.asks = PART_BLOCKS;
    p->part.turn = 0;
    return ok;
}

/* One variant: loaded, run, closed. */
static bool prove_variant(struct prove *p, const char *library, uint32_t variant)
{
    struct context *ctx = p->run.c.ctx;
    p->variant = variant;
    p->refusals = REFUSAL_ELEMENTS;
    p->endless = 0;
    p->sizing = (struct sizing){
        .session = &p->run.s, .given = p->run.c.options, .running = *p->run.c.options, .graph = p->legal};
    p->sizing.running.output = NULL;
    mcc_host host = {.size = sizeof host,
                     .user = p,
                     .threads = 1,
                     .alloc = on_alloc,
                     .release = on_release,
                     .event = on_event,
                     .launch = capture_launch,
                     .flags = variant + 1};
    if (!session_open(&p->run.s, ctx, &p->sizing.running, library, &host))
        return false;
    ctx->model_path = p->run.c.options->files.items.data[0];
    strbuf_init(&p->now->sizes, &ctx->session);
    strbuf_init(&p->now->more, &ctx->session);
    bool ok = serves(p) && session_feed(&p->run.s, true);
    ok = ok && verdict_begin(p);
    if (ok)
        sizes_settle(p, true, 1);
    const uint32_t least = p->least = p->many ? INTEGER_DRAWS : p->calls ? PROVE_CALLS : PROVE_DRAWS;
    const bool others = p->by_data || p->integers.compared.n; /* draws below show more of integers than these do */
    const bool large = p->run.c.module->plan.weights_bytes >= LARGE_WEIGHTS;
    for (uint32_t draw = 0; ok && !p->now->ended && (draw < least || draw < CHANCE_MOST); draw++) {
        const bool integers = draw >= least && !others && verdict_lacks_integers(p, draw, 0);
        if (draw >= least && !integers && !verdict_lacks_choices(p, draw, least))
            break;
        p->choosing = draw < least ? 0 : draw - least + 1;
        p->part.asks = p->choosing ? PART_CHOICES : PART_INTEGERS;
        const bool parts = p->choosing ? !integers : large && draw >= PROVE_CALLS;
        ok = prove_draw(p, draw, parts && !p->by_data && single_begin(p) ? DRAW_PARTS : DRAW_ALL);
        single_end(p);
    }
    p->part.asks = PART_BLOCKS;
    p->choosing = 0;
    ok = ok && prove_draw_ties(p);
    p->compared = p->integers.compared.n > 0;
    for (uint32_t draw = 0;
         ok && p->compared && draw < INTEGER_MOST && !p->now->ended && verdict_lacks_integers(p, draw, COMPARED_LEAST);
         draw++)
        ok = prove_draw(p, 6 * INTEGER_DRAWS + draw, DRAW_ALL);
    p->compared = false;
    p->few = control_runs(p); /* loops of no trip and of one are rare among other numbers */
    for (uint32_t draw = 0;
         ok && p->few && !p->now->ended && draw < PROVE_FEW_MOST && (draw < PROVE_FEW || control_lacks(p)); draw++)
        ok = prove_draw(p, INTEGER_DRAWS + draw, DRAW_ALL);
    p->larger = p->few;
    p->few = false;
    for (uint32_t draw = 0; ok && p->larger && !p->now->ended && draw < PROVE_TRIPS; draw++)
        ok = prove_draw(p, 3 * INTEGER_DRAWS + draw, DRAW_ALL);
    p->larger = false;
    ok = ok && (!p->by_data || draw_by_data(p));
    ok = ok && (p->now->ended || sizes_draw(p));
    if (p->now->ended && !p->now->why)
        p->now->why = p->now->ended;
    ok = ok && ctx->fail == FAIL_NONE;
    session_close(&p->run.s);
    return ok;
}

/* In a context of its own, as the compilation to prove is another one. */
static bool compare_machine(struct prove *p, const char *library)
{
    struct context *ctx = p->run.c.ctx;
    p->code_context = context_new();
    if (!p->code_context)
        return error_limit(ctx, (src_id){0}, "out of memory");
    p->code_context->unwind = ctx->unwind;
    p->machine = code_run(p->code_context, p->run.c.options, library);
    report_diagnostics(p->code_context, p->run.c.report, p->run.c.options);
    ctx->fail = p->code_context->fail;
    return p->machine;
}

static void prove_model(void *user, const char *library)
{
    struct prove *p = user;
    const struct options *o = p->run.c.options;
    struct context *ctx = p->run.c.ctx;
    struct options compiling = *o;
    if (o->machine && !compare_machine(p, library))
        return;
    if (o->machine == OPT_MACHINE_ONLY) {
        p->done = true;
        return;
    }
    compiling.output = library;
    compiling.emit = OPT_EMIT_NONE;
    compiling.weights = OPT_WEIGHTS_EMBEDDED;
    p->run.c.options = &compiling;
    ctx->field_code = true;
    enum fail fail = compile_keep(&p->run.c, o->files.items.data[0], NULL);
    ctx->field_code = false;
    p->run.c.options = o;
    if (fail != FAIL_NONE || !legal_graph(p, o->files.items.data[0]))
        return;
    p->all = NEW_ARRAY(&ctx->session, struct certificate, p->run.c.targets.n + 1);
    for (uint32_t v = 0; v < p->run.c.targets.n; v++) {
        p->now = &p->all[v];
        p->now->variant = p->run.c.targets.data[v]->name;
        if (cpu_runs(ctx, p->run.c.targets.data[v]->row) && !prove_variant(p, library, v))
            return;
    }
    p->done = true;
}

static void prove_end(void *user)
{
    struct prove *p = user;
    session_close(&p->run.s);
    verdict_end(p);
    guard_end(&p->guard);
    if (p->apart)
        context_free(p->apart);
    if (p->machine) {
        session_close(&p->machine->run.s);
        guard_end(&p->machine->guard);
    }
}

bool prove_network(struct context *ctx, const struct options *o, struct prove *p)
{
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES); /* each draw takes memory that the one before has released */
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    *p = (struct prove){.run = {.c = {.ctx = ctx, .options = o, .report = terminal_report(), .in_field = true}}};
    return with_temporary(ctx, library_name(o), prove_model, prove_end, p) && p->done && ctx->fail == FAIL_NONE;
}
