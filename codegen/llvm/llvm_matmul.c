/* L_MATMUL by the tile registers of AMX.
 *
 * Registers 0 .. 3 hold the sums, of each set of rows and vector of columns one; 4 and 5 rows of a, 6 and 7 panels of
 * b, so that each that is loaded serves two products. Their shapes are state of the thread: set once before the
 * function's body if all its products have the same, else before each, and released where it is left.
 */
#include "codegen/llvm/llvm.h"

enum { SUMS = 0, ROWS = 4, PANELS = 6, SETS = 2, CONFIG_BYTES = 64, LINE = 64 };
enum { DISTANCE_IN = MATMUL_FIRST - 1, ROWS_IN = MATMUL_FIRST, K_IN = MATMUL_FIRST + 5 }; /* operands */

static LLVMValueRef tile(struct emitter *e, uint32_t number)
{
    return LLVMConstInt(e->i8, number, false);
}

static void call_tile(struct emitter *e, const char *name, LLVMValueRef *args, unsigned n)
{
    call_intrinsic(e, name, NULL, 0, args, n);
}

static bool shape_of(const struct emitter *e, const struct lstmt *s, struct lmatmul *m)
{
    int64_t constants[MATMUL_FIXED - MATMUL_FIRST + 3 * MATMUL_LOOPS];
    for (uint32_t i = MATMUL_FIRST; i < s->n_in; i++) {
        if (!e->values[s->in[i].i] || !LLVMIsAConstantInt(e->values[s->in[i].i]))
            return false;
        constants[i - MATMUL_FIRST] = LLVMConstIntGetSExtValue(e->values[s->in[i].i]);
    }
    return lmatmul_of(constants, s->n_in - MATMUL_FIRST, elem_size(operand_type(e, s, 1).elem), m);
}

/* The 64 bytes that ldtilecfg reads: palette 1, then of 16 registers the bytes of a row, and the rows. k_bytes: of a
 * row of a. */
static void configure(struct emitter *e, int64_t rows, int64_t k_bytes)
{
    enum { BYTES_AT = 16, ROWS_AT = 48, GROUP = 4 };
    LLVMValueRef parts[CONFIG_BYTES];
    uint8_t config[CONFIG_BYTES] = {1};
    for (uint32_t i = 0; i < PANELS + SETS; i++) {
        config[BYTES_AT + 2 * i] = (uint8_t)(i >= ROWS && i < PANELS ? k_bytes : LINE);
        config[ROWS_AT + i] = (uint8_t)(i >= PANELS ? k_bytes / GROUP : rows);
    }
    for (uint32_t i = 0; i < CONFIG_BYTES; i++)
        parts[i] = LLVMConstInt(e->i8, config[i], false);
    LLVMValueRef store = LLVMBuildStore(e->b, LLVMConstVector(parts, CONFIG_BYTES), e->tile_memory);
    LLVMSetAlignment(store, CONFIG_BYTES);
    call_tile(e, "llvm.x86.ldtilecfg", &e->tile_memory, 1);
}

/* The constant of the function's body that is value r; NULL: it is none. */
static const struct lstmt *constant_of(const struct lfunc *f, lreg r)
{
    const struct lblk *body = &f->blocks.data[1];
    for (uint32_t i = 0; i < body->stmts.n; i++)
        if (body->stmts.data[i].op == L_CONST && body->stmts.data[i].out[0].i == r.i)
            return &body->stmts.data[i];
    return NULL;
}

void matmul_begin(struct emitter *e)
{
    const struct lstmt *first = NULL;
    bool same = true;
    for (uint32_t b = 1; b < e->f->blocks.n; b++)
        for (uint32_t i = 0; i < e->f->blocks.data[b].stmts.n; i++) {
            const struct lstmt *s = &e->f->blocks.data[b].stmts.data[i];
            if (s->op != L_MATMUL)
                continue;
            first = first ? first : s;
            same = same && s->in[ROWS_IN].i == first->in[ROWS_IN].i && s->in[K_IN].i == first->in[K_IN].i &&
                   operand_type(e, s, 1).elem == operand_type(e, first, 1).elem;
        }
    if (!first || !e->machine->tiles)
        return;
    const struct lstmt *rows = constant_of(e->f, first->in[ROWS_IN]), *k = constant_of(e->f, first->in[K_IN]);
    e->tile_memory = LLVMBuildAlloca(e->b, LLVMVectorType(e->i8, CONFIG_BYTES), "");
    LLVMSetAlignment(e->tile_memory, CONFIG_BYTES);
    e->tiles_set = same && rows && k;
    if (e->tiles_set)
        configure(e, rows->imm, k->imm * elem_size(operand_type(e, first, 1).elem));
}

struct product {
    struct emitter *e;
    const struct lmatmul *m;
    const char *instruction;
    uint32_t size, rows, vectors; /* bytes of an element of a and b; sets of rows, vectors of columns */
    LLVMValueRef stride, line, distance; /* bytes */
};

static LLVMValueRef after(const struct product *p, LLVMValueRef from, int64_t elements)
{
    LLVMValueRef by = index_const(p->e, elements * p->size);
    return elements ? LLVMBuildGEP2(p->e->b, p->e->i8, from, &by, 1, "") : from;
}

static void step(const struct product *p, LLVMValueRef a, LLVMValueRef b)
{
    struct emitter *e = p->e;
    for (uint32_t v = 0; v < p->vectors; v++) {
        LLVMValueRef panel = after(p, b, v ? p->m->apart : 0);
        call_tile(e, "llvm.x86.tileloadd64", (LLVMValueRef[]){tile(e, PANELS + v), panel, p->line}, 3);
        for (int64_t l = 0; l < p->m->lines; l++) {
            LLVMValueRef line = after(p, panel, l * LINE / p->size), by = p->distance;
            emit_prefetch(e, LLVMBuildGEP2(e->b, e->i8, line, &by, 1, ""), false);
        }
    }
    for (uint32_t r = 0; r < p->rows; r++) {
        call_tile(e, "llvm.x86.tileloadd64",
                  (LLVMValueRef[]){tile(e, ROWS + r), after(p, a, r ? p->m->second : 0), p->stride}, 3);
        for (uint32_t v = 0; v < p->vectors; v++)
            call_tile(e, p->instruction,
                      (LLVMValueRef[]){tile(e, SUMS + r * SETS + v), tile(e, ROWS + r), tile(e, PANELS + v)}, 3);
    }
}

/* The loops from number l on. */
static void loops(const struct product *p, uint32_t l, LLVMValueRef a, LLVMValueRef b)
{
    struct emitter *e = p->e;
    while (l < p->m->n_loops && p->m->loop[l].n == 1)
        l++;
    if (l == p->m->n_loops) {
        step(p, a, b);
        return;
    }
    LLVMValueRef phi[3], next[3], first[3] = {index_const(e, 0), a, b};
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b), body = block_new(e), done = block_new(e), end;
    LLVMBuildBr(e->b, body);
    LLVMPositionBuilderAtEnd(e->b, body);
    for (int i = 0; i < 3; i++)
        phi[i] = LLVMBuildPhi(e->b, LLVMTypeOf(first[i]), "");
    loops(p, l + 1, phi[1], phi[2]);
    end = LLVMGetInsertBlock(e->b);
    next[0] = LLVMBuildNSWAdd(e->b, phi[0], index_const(e, 1), "");
    next[1] = after(p, phi[1], p->m->loop[l].a);
    next[2] = after(p, phi[2], p->m->loop[l].b);
    for (int i = 0; i < 3; i++)
        LLVMAddIncoming(phi[i], (LLVMValueRef[]){first[i], next[i]}, (LLVMBasicBlockRef[]){from, end}, 2);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next[0], index_const(e, p->m->loop[l].n), ""), body, done);
    LLVMPositionBuilderAtEnd(e->b, done);
}

LLVMValueRef emit_matmul(struct emitter *e, const struct lstmt *s)
{
    static const char *const of_bytes[2][2] = {{"llvm.x86.tdpbssd", "llvm.x86.tdpbsud"},
                                               {"llvm.x86.tdpbusd", "llvm.x86.tdpbuud"}};
    enum elem ea = operand_type(e, s, 1).elem, eb = operand_type(e, s, 3).elem;
    struct lmatmul m;
    if (!e->machine->tiles || !shape_of(e, s, &m)) {
        emit_fail(e, "a product by tiles, which this CPU has none of");
        return NULL;
    }
    struct product p = {.e = e,
                        .m = &m,
                        .instruction = ea == ELEM_BF16 ? "llvm.x86.tdpbf16ps" : of_bytes[ea == ELEM_U8][eb == ELEM_U8],
                        .size = elem_size(ea),
                        .rows = m.place ? SETS : 1,
                        .vectors = m.apart ? SETS : 1};
    LLVMValueRef a = address_of(e, type_memory(e, ea), operand(e, s, 1), operand(e, s, 2));
    LLVMValueRef b = address_of(e, type_memory(e, eb), operand(e, s, 3), operand(e, s, 4));
    p.stride = index_const(e, m.stride * p.size);
    p.line = index_const(e, LINE);
    p.distance = LLVMBuildMul(e->b, operand(e, s, DISTANCE_IN), index_const(e, p.size), "");
    if (!e->tiles_set)
        configure(e, m.rows, m.k * p.size);
    for (uint32_t r = 0; r < p.rows; r++)
        for (uint32_t v = 0; v < p.vectors; v++)
            call_tile(e, "llvm.x86.tilezero", (LLVMValueRef[]){tile(e, SUMS + r * SETS + v)}, 1);
    loops(&p, 0, a, b);
    LLVMValueRef width = index_const(e, (int64_t)p.vectors * LINE);
    for (uint32_t r = 0; r < p.rows; r++)
        for (uint32_t v = 0; v < p.vectors; v++) {
            LLVMValueRef at = index_const(e, ((r ? m.place : 0) * p.vectors + v) * LINE);
            at = LLVMBuildGEP2(e->b, e->i8, operand(e, s, 0), &at, 1, "");
            call_tile(e, "llvm.x86.tilestored64", (LLVMValueRef[]){tile(e, SUMS + r * SETS + v), at, width}, 3);
        }
    return NULL;
}
