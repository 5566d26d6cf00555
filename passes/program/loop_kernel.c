/* A loop of the program becomes one kernel: a recurrent layer is then one call, its state in the cache, and not a call
 * for each kernel of each step.
 *
 * In: the block of a loop that program/control.c has written, with its launches. Out: a kernel with that loop inside,
 * in which every launch is replaced by the loops of the kernel that it names, and what does not change from trip to
 * trip stands before the loop. Done where no launch of the body is worth several threads, its carried values have one
 * size and nothing grows. A launch of dynamic size is asked about before the loop, which then exists in
 * both forms. Of a program for several CPU levels each has its own kernel; what launches are worth, the best one says.
 */
#include "ir/target/budget.h"
#include "passes/program/program.h"

enum { OUTER_MAX = 200, TEXT_MAX = 256 << 10 };

/* Of a value of the new kernel: does it stay the same from trip to trip; the argument + 1 that a buffer was cut
 * from. */
struct about {
    bool fixed;
    uint32_t root;
};
struct outline {
    struct prog *p;
    uint32_t number, level; /* of the loop's kernel */
    struct lfunc *f; /* the kernel under construction */
    struct prog_values *values;
    VEC(lreg) outer; /* what the loop needs from around it, in order of use */
    VEC(lreg) passed; /* for each of these, what the launch passes: narrow integers as indices; {0}: a constant */
    VEC(struct kernel *) kernels; /* launched inside, in order */
    VEC(struct about) about;
    size_t text;
    int64_t ns;
    uint64_t flops, bytes;
    enum products arithmetic;
    lreg guard; /* of the program: the launches are small; {0}: they are */
};
/* Values of a function that is being copied, and what stands for them. */
struct scope {
    const struct lfunc *from;
    lreg *map; /* NULL: the program's, whose copies are in its notes */
    struct outline *o;
};

/* The values of a program, which grows from loop to loop. One table for all loops: what a loop notes is told apart by
 * its number, and statements that were entered for an earlier loop are not looked at again. */
struct value_note {
    uint32_t block, stmt;   /* what defines it; block 0: nothing that was looked at */
    uint32_t loop;          /* the last one that met it */
    bool inside;            /* that loop defines it; else it needs it from around */
    lreg copy;              /* in the kernel of the loop at hand */
};
struct prog_values {
    VEC(struct value_note) note;   /* by value */
    VEC(uint32_t) entered;         /* by block: statements that are in note */
    uint32_t loops;
};

/* ---- what the loop is made of ------------------------------------------------------------------------------------ */

static struct value_note *note_of(const struct outline *o, lreg v)
{
    struct prog_values *all = o->values;
    while (all->note.n <= v.i)
        VEC_PUSH(o->p->arena, &all->note, (struct value_note){0});
    return &all->note.data[v.i];
}

/* Enters the statements that are new since the last loop. */
static void enter_definitions(const struct outline *o)
{
    const struct lfunc *f = o->p->f;
    for (uint32_t b = 0; b < f->blocks.n; b++) {
        if (b == o->values->entered.n)
            VEC_PUSH(o->p->arena, &o->values->entered, 0);
        const struct lblk *blk = &f->blocks.data[b];
        for (uint32_t i = o->values->entered.data[b]; b && i < blk->stmts.n; i++)
            for (uint32_t r = 0; r < blk->stmts.data[i].n_out; r++) {
                struct value_note *note = note_of(o, blk->stmts.data[i].out[r]);
                note->block = b;
                note->stmt = i;
            }
        o->values->entered.data[b] = blk->stmts.n;
    }
}

/* What defines a value of the program; NULL: an argument, a parameter, or a statement that is not placed yet. */
static const struct lstmt *definition(const struct outline *o, lreg v)
{
    const struct value_note *note = note_of(o, v);
    return note->block ? &o->p->f->blocks.data[note->block].stmts.data[note->stmt] : NULL;
}

/* Notes that the loop meets v. False: it has before. */
static bool meet(const struct outline *o, lreg v, bool inside)
{
    struct value_note *note = note_of(o, v);
    if (note->loop == o->values->loops)
        return false;
    note->loop = o->values->loops;
    note->inside = inside;
    return true;
}

static void need(struct outline *o, lreg v)
{
    if (meet(o, v, false))
        VEC_PUSH(o->p->arena, &o->outer, v);
}

/* Of the level; NULL: the launch does not run there. In a program for one level a launch has the very name of its
 * kernel or of a version of it, in which the kernel's number follows a letter (emit_kernels.c, below). */
static struct kernel *kernel_launched(const struct outline *o, const struct lstmt *s)
{
    struct prog *p = o->p;
    if (s->flags & L_FLAG_ROW)
        return p->m->plan.rows.data[s->imm].of[o->level];
    struct kernel *k = &p->levels[o->level][strtoul(s->name + 1, NULL, 10)];
    while (k->name != s->name)
        k = k->version.of;
    return k;
}

static bool is_version(const struct outline *o, const struct kernel *k)
{
    const struct kernel *all = o->p->levels[o->level];
    return k < all || k >= all + o->p->m->fused.kernels.n;
}

/* Is the launch so small that one thread runs it? If that is dynamic, the guard asks; of a kernel with a version, for
 * the kernel as it is at all sizes. */
static bool launch_small(struct outline *o, const struct kernel *k)
{
    struct prog *p = o->p;
    int64_t count, ns = k->ns > 1 ? k->ns : 1, total;
    if (k->kind == KERNEL_CONTROL || is_version(o, k))
        return true;
    if (ex_is_const(p->x, k->count, &count)) {
        o->ns += mul_i64(count, ns, &total) ? total : RATE_SERIAL_NS;
        return o->level > 0 || (mul_i64(count, ns, &total) && total < RATE_SERIAL_NS);
    }
    o->ns += ns;
    if (o->level > 0)
        return true;
    if (late_expr(p->x, k->count))
        return false;
    lreg all = prog_index(p, k->count), small = prog_op2(p, L_LE, all, prog_const(p, (RATE_SERIAL_NS - 1) / ns));
    o->guard = o->guard.i ? prog_op2(p, L_AND, o->guard, small) : small;
    return true;
}

static bool take_launch(struct outline *o, const struct lstmt *s)
{
    struct kernel *k = kernel_launched(o, s);
    if (!k)
        return true;
    if (!k->text || k->keeps_scratch || k->shared_bytes || !launch_small(o, k)) /* these are a launch's */
        return false;
    o->text += strlen(k->text);
    if (!is_version(o, k)) {
        o->flops += k->flops;
        o->arithmetic = k->flops ? k->arithmetic : o->arithmetic;
        o->bytes += k->bytes;
    }
    VEC_PUSH(o->p->arena, &o->kernels, k);
    return o->text <= TEXT_MAX;
}

static bool take_block(struct outline *o, lblock b)
{
    const struct lfunc *f = o->p->f;
    for (uint32_t i = 0; i < f->blocks.data[b.i].params.n; i++)
        meet(o, f->blocks.data[b.i].params.data[i], true);
    for (uint32_t i = 0; i < f->blocks.data[b.i].stmts.n; i++) {
        struct lstmt s = f->blocks.data[b.i].stmts.data[i]; /* a guard may move the statements */
        if (s.op == L_ADDRESS || s.op == L_LOCAL || (s.op == L_CALL && strcmp(s.name, "mcc_rt_poll") != 0) ||
            (s.op == L_LAUNCH && !take_launch(o, &s)))
            return false;
        for (uint32_t k = 0; k < s.n_in; k++)
            need(o, s.in[k]);
        for (uint32_t k = 0; k < s.n_out; k++)
            meet(o, s.out[k], true);
        for (int k = 0; k < 2; k++)
            if (s.block[k].i && !take_block(o, s.block[k]))
                return false;
    }
    return o->outer.n <= OUTER_MAX;
}

/* ---- copying ----------------------------------------------------------------------------------------------------- */

static lreg *copy_of(const struct scope *s, lreg v)
{
    return s->map ? &s->map[v.i] : &note_of(s->o, v)->copy;
}

static struct about *about(struct outline *o, lreg v)
{
    while (o->about.n <= v.i)
        VEC_PUSH(o->p->arena, &o->about, (struct about){0});
    return &o->about.data[v.i];
}

/* Pure, cheap and safe wherever its operands are there: may stand before the loop. */
static bool may_precede(const struct lstmt *s, struct ltype t)
{
    switch (s->op) {
    case L_CONST:
    case L_IOTA:
    case L_OFFSET:
    case L_LOCAL: return true;
    case L_ADD:
    case L_SUB:
    case L_MUL:
    case L_MIN:
    case L_MAX: return t.elem == ELEM_I64 && t.lanes == 1;
    default: return false;
    }
}

static void clone_block(struct outline *o, const struct scope *from, lblock block, lblock to);

/* Appends a statement whose operands are already the kernel's; results are given. */
static void append(struct outline *o, lblock to, struct lstmt s, struct ltype t)
{
    bool fixed = may_precede(&s, t);
    for (uint32_t i = 0; i < s.n_in; i++)
        fixed &= about(o, s.in[i])->fixed;
    uint32_t root = s.op == L_OFFSET ? about(o, s.in[0])->root : 0;
    for (uint32_t i = 0; i < s.n_out; i++)
        *about(o, s.out[i]) = (struct about){fixed, root};
    VEC_PUSH(o->f->arena, &o->f->blocks.data[fixed ? 1 : to.i].stmts, s);
}

static lreg index_op(struct outline *o, lblock to, enum lop op, int64_t imm, const lreg *in, uint32_t n)
{
    lreg r = lf_value(o->f, prog_i64);
    append(o, to,
           (struct lstmt){.op = op,
                          .type = prog_i64,
                          .in = lf_lregs(o->f, in, n),
                          .n_in = n,
                          .out = lf_lregs(o->f, &r, 1),
                          .n_out = 1,
                          .imm = imm},
           prog_i64);
    return r;
}

static lblock clone_body(struct outline *o, const struct scope *from, lblock block)
{
    lblock made = lf_block(o->f);
    const struct lblk *old = &from->from->blocks.data[block.i];
    for (uint32_t i = 0; i < old->params.n; i++) {
        lreg v = lf_value(o->f, lf_type(from->from, old->params.data[i]));
        *copy_of(from, old->params.data[i]) = v;
        VEC_PUSH(o->f->arena, &o->f->blocks.data[made.i].params, v);
    }
    clone_block(o, from, block, made);
    return made;
}

static void clone_stmt(struct outline *o, const struct scope *from, const struct lstmt *old, lblock to)
{
    struct lstmt s = *old;
    s.in = NEW_ARRAY(o->f->arena, lreg, s.n_in + 1);
    s.out = NEW_ARRAY(o->f->arena, lreg, s.n_out + 1);
    for (uint32_t i = 0; i < s.n_in; i++)
        s.in[i] = *copy_of(from, old->in[i]);
    if (s.flags & L_FLAG_INVARIANT) { /* other kernels of the loop may write it */
        uint32_t root = about(o, s.in[0])->root;
        if (!root || o->f->args.data[root - 1].flags & LARG_OUT)
            s.flags &= ~(uint32_t)L_FLAG_INVARIANT;
    }
    for (int k = 0; k < 2; k++)
        if (s.block[k].i)
            s.block[k] = clone_body(o, from, s.block[k]);
    for (uint32_t i = 0; i < s.n_out; i++)
        *copy_of(from, old->out[i]) = s.out[i] = lf_value(o->f, lf_type(from->from, old->out[i]));
    append(o, to, s, s.n_out ? lf_type(o->f, s.out[0]) : prog_i64);
}

/* The parallel loop of an inlined kernel: over what its own bounds and the launch's count leave. */
static void clone_parallel(struct outline *o, const struct scope *from, const struct lstmt *old, lreg count, lblock to)
{
    lreg zero = index_op(o, to, L_CONST, 0, NULL, 0);
    lreg low[2] = {*copy_of(from, old->in[0]), zero}, high[2] = {*copy_of(from, old->in[1]), count}, in[2];
    in[0] = index_op(o, to, L_MAX, 0, low, 2);
    in[1] = index_op(o, to, L_MIN, 0, high, 2);
    lblock body = clone_body(o, from, old->block[0]);
    append(o, to, (struct lstmt){.op = L_FOR, .in = lf_lregs(o->f, in, 2), .n_in = 2, .imm = 1, .block = {body}},
           prog_i64);
}

static void clone_launch(struct outline *o, const struct scope *caller, const struct lstmt *launch, lblock to)
{
    struct prog *p = o->p;
    const struct kernel *k = kernel_launched(o, launch);
    const char *text = k ? k->text : NULL;
    if (!k)
        return;
    struct lfunc *f = lf_parse(p->m->ctx, p->arena, &text);
    if (!f || f->args.n + 1 > launch->n_in) {
        p->failed = true;
        error_internal(p->m->ctx, (src_id){0}, "the kernel %s does not fit its launch", launch->name);
        return;
    }
    struct scope from = {f, NEW_ARRAY(p->arena, lreg, f->types.n), o};
    for (uint32_t i = 0; i < f->args.n; i++)
        from.map[i + 1] = *copy_of(caller, launch->in[i]);
    for (uint32_t i = 0; i < f->nodes.n; i++) {
        uint32_t j = 0;
        while (j < o->f->nodes.n && o->f->nodes.data[j] != f->nodes.data[i])
            j++;
        if (j == o->f->nodes.n)
            VEC_PUSH(o->f->arena, &o->f->nodes, f->nodes.data[i]);
    }
    for (uint32_t i = 0; i < f->blocks.data[1].stmts.n; i++) {
        const struct lstmt *s = &f->blocks.data[1].stmts.data[i];
        if (s->op == L_PARALLEL)
            clone_parallel(o, &from, s, *copy_of(caller, launch->in[launch->n_in - 1]), to);
        else
            clone_stmt(o, &from, s, to);
    }
}

static void clone_block(struct outline *o, const struct scope *from, lblock block, lblock to)
{
    const struct lblk *blk = &from->from->blocks.data[block.i];
    for (uint32_t i = 0; i < blk->stmts.n && !o->p->failed; i++) {
        if (blk->stmts.data[i].op == L_LAUNCH)
            clone_launch(o, from, &blk->stmts.data[i], to);
        else
            clone_stmt(o, from, &blk->stmts.data[i], to);
    }
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

/* May the run write what this buffer of the program was cut from? */
static bool is_written(const struct outline *o, lreg v)
{
    const struct lfunc *f = o->p->f;
    const struct lstmt *def;
    while (v.i > f->args.n && (def = definition(o, v)) && def->op == L_OFFSET)
        v = def->in[0];
    return v.i > f->args.n || f->args.data[v.i - 1].flags & LARG_OUT;
}

/* Is the value whether the model runs at some level, which the kernel knows? */
static bool asks_level(const struct outline *o, lreg v, bool *is)
{
    const struct prog *p = o->p;
    uint32_t i = 0;
    while (i < p->n_levels && p->is_level[i].i != v.i)
        i++;
    *is = i == o->level;
    return i < p->n_levels;
}

/* What a launch can pass: buffers and indices. */
static bool pass_outer(struct outline *o)
{
    struct prog *p = o->p;
    bool is;
    for (uint32_t i = 0; i < o->outer.n; i++) {
        lreg v = o->outer.data[i];
        struct ltype t = lf_type(p->f, v);
        if (t.lanes > 1 || (t.lanes == 1 && elem_class(t.elem) == 'F'))
            return false;
        const struct lstmt *def = definition(o, v);
        bool constant = (def && def->op == L_CONST) || asks_level(o, v, &is);
        VEC_PUSH(p->arena, &o->passed,
                 constant                             ? (lreg){0}
                 : t.lanes == 0 || t.elem == ELEM_I64 ? v
                                                      : prog_op(p, L_CONVERT, prog_i64, &v, 1));
    }
    return true;
}

/* Arguments for what is around the loop; its constants are constants inside. */
static void make_arguments(struct outline *o, const struct scope *from)
{
    for (uint32_t i = 0; i < o->outer.n; i++) {
        struct ltype t = lf_type(o->p->f, o->outer.data[i]);
        *copy_of(from, o->outer.data[i]) = (lreg){0};
        if (!o->passed.data[i].i)
            continue;
        uint32_t flags = t.lanes ? 0 : is_written(o, o->outer.data[i]) ? LARG_IN | LARG_OUT : LARG_IN;
        lreg v = lf_arg(o->f, t.lanes ? prog_i64 : t, flags, 0, NULL);
        *about(o, v) = (struct about){true, t.lanes ? 0 : o->f->args.n};
        *copy_of(from, o->outer.data[i]) = v;
    }
    for (uint32_t i = 0; i < o->outer.n; i++) {
        lreg *v = copy_of(from, o->outer.data[i]);
        struct ltype t = lf_type(o->p->f, o->outer.data[i]);
        bool is;
        if (asks_level(o, o->outer.data[i], &is))
            *v = index_op(o, (lblock){1}, L_CONST, is, NULL, 0);
        if (!v->i)
            clone_stmt(o, from, definition(o, o->outer.data[i]), (lblock){1});
        else if (t.lanes && t.elem != ELEM_I64)
            *v = lf_op(o->f, (lblock){1}, L_CONVERT, t, v, 1);
        about(o, *copy_of(from, o->outer.data[i]))->fixed = true;
    }
}

static void finish_kernel(struct outline *o)
{
    struct kernel *k = &o->p->levels[o->level][o->number];
    struct strbuf text = strbuf_of(o->p->arena);
    lf_print(o->f, &text);
    k->name = o->f->name;
    k->text = arena_strndup(o->p->arena, text.data, text.n);
    k->local_bytes = o->f->local_bytes;
    k->ns = o->ns;
    k->flops = o->flops;
    k->arithmetic = o->arithmetic;
    k->bytes = o->bytes;
    k->args.data = NEW_ARRAY(o->p->arena, struct karg, o->f->args.n + 1);
    k->args.n = k->args.cap = o->f->args.n;
}

/* One parallel index: the loop, and then the number of its trips into cell. */
static bool make_kernel(struct outline *o, const struct lstmt *loop, lreg cell)
{
    struct prog *p = o->p;
    o->f = lf_new(p->m->ctx, p->arena, LROLE_KERNEL, arena_printf(p->arena, "k%u%s", o->number, p->suffixes[o->level]));
    struct scope from = {p->f, NULL, o};
    make_arguments(o, &from);
    lblock once = lf_block(o->f);
    lreg param = lf_value(o->f, prog_i64), bounds[2], store[3];
    VEC_PUSH(o->f->arena, &o->f->blocks.data[once.i].params, param);
    clone_stmt(o, &from, loop, once);
    bounds[0] = index_op(o, once, L_CONST, 0, NULL, 0);
    bounds[1] = index_op(o, once, L_CONST, 1, NULL, 0);
    store[0] = *copy_of(&from, cell);
    store[1] = bounds[0];
    store[2] = *copy_of(&from, loop->out[1]);
    lf_op(o->f, once, L_STORE, prog_i64, store, 3);
    struct lstmt *all = lf_stmt(o->f, (lblock){1}, L_PARALLEL, bounds, 2);
    all->block[0] = once;
    if (p->failed)
        return false;
    lf_tidy(o->f);
    if (!lf_finish(o->f))
        return false;
    finish_kernel(o);
    return true;
}

/* ---- in the program ---------------------------------------------------------------------------------------------- */

struct placing {
    struct outline *o;
    struct kernel *const *of; /* the loop's, by level */
    const struct lstmt *loop;
    lreg cell;
};

static lreg launch(const struct placing *l)
{
    struct prog *p = l->o->p;
    VEC(lreg) in = {0};
    for (uint32_t i = 0; i < l->o->outer.n; i++)
        if (l->o->passed.data[i].i)
            VEC_PUSH(p->arena, &in, l->o->passed.data[i]);
    VEC_PUSH(p->arena, &in, prog_const(p, 1));
    prog_launch_one(p, l->of, arena_printf(p->arena, "k%u", l->o->number), in.data, in.n,
                    graph_node(p->g, l->of[0]->anchor)->src.i);
    return prog_op(p, L_LOAD, prog_i64, ARRAY(lreg, l->cell, prog_const(p, 0)));
}

static lblock yielding(const struct placing *l, bool launches)
{
    struct prog *p = l->o->p;
    lblock block = lf_block(p->f), old = p->block;
    p->block = block;
    lreg trips = launches ? launch(l) : l->loop->out[1];
    if (!launches)
        *lf_stmt(p->f, block, L_FOR, NULL, 0) = *l->loop;
    lf_stmt(p->f, block, L_YIELD, &trips, 1);
    p->block = old;
    return block;
}

/* The launch, or, where a guard asks, either that or the loop as it was. */
static lreg place(const struct placing *l)
{
    struct prog *p = l->o->p;
    if (!l->o->guard.i)
        return launch(l);
    lblock block[2] = {yielding(l, true), yielding(l, false)};
    lreg trips = lf_value(p->f, prog_i64);
    struct lstmt *s = lf_stmt(p->f, p->block, L_IF, &l->o->guard, 1);
    s->type = prog_i64;
    s->out = lf_lregs(p->f, &trips, 1);
    s->n_out = 1;
    s->block[0] = block[0];
    s->block[1] = block[1];
    return trips;
}

static bool take_loop(struct outline *o, const struct lstmt *loop)
{
    o->values->loops++;
    for (uint32_t i = 0; i < loop->n_in; i++)
        need(o, loop->in[i]);
    return take_block(o, loop->block[0]) && o->kernels.n;
}

lreg prog_loop_kernel(struct prog *p, uint32_t number, const struct lstmt *loop)
{
    struct outline *all = NEW_ARRAY(p->arena, struct outline, p->n_levels), *best = all;
    struct kernel **of = NEW_ARRAY(p->arena, struct kernel *, p->n_levels);
    if (p->m->asked.opt_level == 0) /* a second opinion for the tests */
        return (lreg){0};
    if (!p->values)
        p->values = NEW(p->arena, struct prog_values);
    for (uint32_t i = 0; i < p->n_levels; i++) {
        of[i] = &p->levels[i][number];
        all[i] = (struct outline){.p = p, .number = number, .level = i, .values = p->values};
        if (!take_loop(&all[i], loop))
            return (lreg){0};
    }
    lreg cell = prog_local(p, 1);
    VEC_PUSH(p->arena, &best->outer, cell);
    enter_definitions(best);
    if (!pass_outer(best))
        return (lreg){0};
    for (uint32_t i = 0; i < p->n_levels; i++) { /* all need the same, as the program's statements say */
        all[i].outer = best->outer;
        all[i].passed = best->passed;
        if (!make_kernel(&all[i], loop, cell)) {
            p->failed = true;
            return (lreg){0};
        }
        for (uint32_t k = 0; !best->guard.i && k < all[i].kernels.n; k++)
            all[i].kernels.data[k]->text = NULL; /* nobody else launches them */
    }
    return place(&(struct placing){best, of, loop, cell});
}
