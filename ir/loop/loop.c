/* Construction of loop-IR functions, and the table of statements (ir/loop/loop.def) that every other part reads.
 *
 * Functions own nothing: statements, operand lists and blocks lie in the arena that lf_new was given.
 */
#include "ir/loop/internal.h"

/* What follows the name of a statement in its text, which ir/loop/print.c writes and ir/loop/parse.c reads:
 *
 *   T  type, if there is one result    V  all operands that are left   C  value of a constant
 *   I  imm                             %  the next operand             X  what a conversion does besides
 *   N  node                            L  lanes of a shuffle           A  mask, alignment and flags of an access
 *   @  name                            O  imm, a statement's name      R  unit of a launch's imm: grain or row
 *   S  name, as text in quotes         M  whether a call may fail      F, B  a loop, a branch
 *
 * Words and signs stand for themselves. */
static const char form_plain[] = "T V", form_const[] = "T C", form_convert[] = "T VX", form_lane[] = "T V lane I",
                  form_shuffle[] = "T V [L]", form_hreduce[] = "T O V", form_apply[] = "T @(V)",
                  form_load[] = "T %[%]A", form_loads[] = "T %[%] stride %A", form_store[] = "%[%], %A",
                  form_stores[] = "%[%] stride %, %A", form_local[] = "T I", form_global[] = "T @", form_for[] = "F",
                  form_if[] = "B", form_check[] = "% code I node N S", form_call[] = "@(V)M",
                  form_launch[] = "@(V) count % R I node NM";

const struct lop_info lop_table[L_COUNT] = {
    [L_NONE] = {"none", "", 0, 0, 0, LCLASS_VALUE, 0},
#define LOP(id, name, least, most, results, class, form, rule, exec, error, emit, elements) \
    [L_##id] = {name, form, least, most, results, LCLASS_##class, elements},
#include "ir/loop/loop.def"
};

const char *lop_name(enum lop op)
{
    return op < L_COUNT ? lop_table[op].name : "none";
}

enum lop lop_by_name(const char *name)
{
    for (uint32_t op = L_NONE + 1; op < L_COUNT; op++)
        if (strcmp(lop_table[op].name, name) == 0)
            return (enum lop)op;
    return L_NONE;
}

uint32_t loop_elem_classes(enum elem e)
{
    uint32_t size = e > ELEM_NONE && e < ELEM_COUNT ? elem_size(e) : 0;
    if (size == 0 || size > 8)
        return 0;
    switch (elem_class(e)) {
    case 'F': return e == ELEM_F32 || e == ELEM_F64 ? E_F | E_X : e == ELEM_F16 ? E_H | E_X : E_X;
    case 'I':
    case 'U': return elem_bits(e) >= 8 ? E_I | E_X : E_X;
    case 'B': return E_B | E_X;
    default: return 0;
    }
}

struct lfunc *lf_new(struct context *ctx, struct arena *arena, enum lrole role, const char *name)
{
    struct lfunc *f = NEW(arena, struct lfunc);
    f->ctx = ctx;
    f->arena = arena;
    f->role = role;
    f->name = arena_strdup(arena, name);
    VEC_PUSH(arena, &f->types, (struct ltype){0});
    VEC_PUSH(arena, &f->blocks, (struct lblk){0});
    VEC_PUSH(arena, &f->blocks, (struct lblk){0});
    return f;
}

lreg lf_value(struct lfunc *f, struct ltype type)
{
    VEC_PUSH(f->arena, &f->types, type);
    return (lreg){f->types.n - 1};
}

lreg lf_arg(struct lfunc *f, struct ltype type, uint32_t flags, uint32_t align, const char *label)
{
    struct larg arg = {type, flags, align, label ? arena_strdup(f->arena, label) : NULL};
    VEC_PUSH(f->arena, &f->args, arg);
    return lf_value(f, type);
}

lblock lf_block(struct lfunc *f)
{
    VEC_PUSH(f->arena, &f->blocks, (struct lblk){0});
    return (lblock){f->blocks.n - 1};
}

lreg *lf_lregs(struct lfunc *f, const lreg *v, uint32_t n)
{
    lreg *copy = NEW_ARRAY(f->arena, lreg, n ? n : 1);
    if (n)
        memcpy(copy, v, n * sizeof *v);
    return copy;
}

struct lstmt *lf_stmt(struct lfunc *f, lblock b, enum lop op, const lreg *in, uint32_t n_in)
{
    struct lblk *blk = &f->blocks.data[b.i];
    lreg *operands = n_in ? lf_lregs(f, in, n_in) : NULL;
    VEC_PUSH(f->arena, &blk->stmts, ((struct lstmt){.op = op, .in = operands, .n_in = n_in}));
    return &blk->stmts.data[blk->stmts.n - 1];
}

struct lstmt *lf_last(struct lfunc *f, lblock b)
{
    struct lblk *block = &f->blocks.data[b.i];
    return &block->stmts.data[block->stmts.n - 1];
}

lreg lf_op(struct lfunc *f, lblock b, enum lop op, struct ltype type, const lreg *in, uint32_t n_in)
{
    struct lstmt *s = lf_stmt(f, b, op, in, n_in);
    s->type = type;
    if (lop_table[op].n_out != 1)
        return (lreg){0};
    lreg v = lf_value(f, type);
    s->out = lf_lregs(f, &v, 1);
    s->n_out = 1;
    return v;
}

struct ltype lf_type(const struct lfunc *f, lreg v)
{
    return v.i < f->types.n ? f->types.data[v.i] : (struct ltype){0};
}

struct lfunc *lf_part(const struct lfunc *f, const char *name)
{
    const struct lfunc *of = f->of ? f->of : f;
    for (uint32_t i = 0; i < of->parts.n && of->parts.data[i] != f; i++)
        if (strcmp(of->parts.data[i]->name, name) == 0)
            return of->parts.data[i];
    return NULL;
}

struct lmem lstmt_mem(const struct lstmt *s)
{
    struct lmem m = {-1, -1, -1};
    int next = 2;
    if (s->op == L_LOADS || s->op == L_STORES)
        m.stride = next++;
    if (lop_table[s->op].class == LCLASS_STORE)
        m.value = next++;
    if ((int)s->n_in > next)
        m.mask = next;
    return m;
}

bool lmatmul_of(const int64_t *c, uint32_t n, uint32_t size, struct lmatmul *m)
{
    enum { FIRST = MATMUL_FIXED - MATMUL_FIRST, PER_LOOP = 3, GROUP_BYTES = 4 };
    if (n < FIRST + PER_LOOP || (n - FIRST) % PER_LOOP || n > FIRST + PER_LOOP * MATMUL_LOOPS)
        return false;
    *m = (struct lmatmul){c[0], c[1], c[2], c[3], c[4], c[5], c[6], (n - FIRST) / PER_LOOP, {{0}}};
    int64_t trips = 1;
    for (uint32_t i = 1; i < n; i++) /* the interpreter and code generation multiply them without a check */
        if (c[i] < INT32_MIN || c[i] > INT32_MAX)
            return false;
    bool fits = m->rows >= 1 && m->rows <= MATMUL_COLUMNS && m->place >= 0 && m->place <= m->rows && m->apart >= 0 &&
                m->k > 0 && m->k * size <= MATMUL_BYTES && m->k * size % GROUP_BYTES == 0 && m->lines >= 0 &&
                m->lines * GROUP_BYTES <= m->k * size;
    for (uint32_t i = 0; i < m->n_loops; i++) {
        const int64_t *l = c + FIRST + (size_t)PER_LOOP * i;
        m->loop[i].n = l[0];
        m->loop[i].a = l[1];
        m->loop[i].b = l[2];
        fits = fits && l[0] >= 1 && mul_i64(trips, l[0], &trips) && trips <= INT32_MAX;
    }
    return fits;
}

void loop_layout_locals(struct lfunc *f)
{
    int64_t total = 0;
    for (uint32_t b = 1; b < f->blocks.n; b++) {
        const struct lblk *blk = &f->blocks.data[b];
        for (uint32_t i = 0; i < blk->stmts.n; i++) {
            const struct lstmt *s = &blk->stmts.data[i];
            int64_t bytes;
            if (s->op != L_LOCAL || s->imm < 0 || s->type.elem >= ELEM_COUNT)
                continue;
            if (!mul_i64(s->imm, elem_size(s->type.elem), &bytes) || !add_i64(bytes, 63, &bytes) ||
                !add_i64(total, bytes & ~(int64_t)63, &total))
                context_unwind(f->ctx, FAIL_LIMIT, (src_id){0}, "kernel %s needs more scratch memory than 2^63 bytes",
                               f->name);
        }
    }
    f->local_bytes = total;
}

bool lf_finish(struct lfunc *f)
{
    loop_layout_locals(f);
    return lf_verify(f);
}
