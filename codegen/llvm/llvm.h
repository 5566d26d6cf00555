/* Inside codegen: loop-IR functions being turned into one LLVM module (worker processes only).
 *
 * Failure is sticky: emit_fail() records the first reason, emission goes on with undefined values, and
 * llvm_compile() reports it at the end. No unwinding: LLVM frames lie between.
 */
#pragma once

#include <llvm-c/Core.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/TargetMachine.h>

#include "codegen/codegen.h"

enum arch { ARCH_X86_64, ARCH_AARCH64, ARCH_RISCV64, ARCH_ARM, ARCH_RISCV32, ARCH_WASM32, ARCH_OTHER };

/* A target machine and what emission wants to know about it. */
struct llvm_machine {
    struct target target;          /* own copies of the strings */
    int opt_level;
    LLVMTargetMachineRef tm;
    struct generator *generator;   /* of objects, made with the first of them */
    enum arch arch;
    bool words32;                  /* registers of 32 bits */
    bool bare;                     /* no system: no unwinder, no dynamic linker */
    bool fma, fma64;               /* fused multiply-add is an instruction, for f32 and for f64 */
    bool relaxed_madd;             /* one of vectors that the engine may fuse */
    bool workers;                  /* WebAssembly: the host shares the indices of a launch among instances */
    bool f16;                      /* f32 <-> f16 conversion is an instruction */
    bool f16_math;                 /* arithmetic on f16 is */
    bool vbmi;                     /* bytes select from two registers of 64 */
    uint32_t table_bytes;          /* of a register whose bytes select bytes (llvm_table.c); 0: there are none */
    bool bf16;                     /* f32 -> bf16 is one, that counts subnormal numbers as 0 */
    uint32_t dot_forms;            /* rows of llvm_dot.c's table that are instructions here, a bit each */
    bool tiles;                    /* L_MATMUL is instructions of AMX */
    bool madd[3];                  /* x86: i16 pairs multiplied and added, in 16, 32, 64 bytes */
    bool dsp;                      /* Arm without vectors: pairs of i16 in a word are multiplied and added (SMLAD) */
    bool masks;                    /* loads of some lanes only are instructions, for elements of 4 and 8 bytes */
    bool gathers;                  /* the same of lanes at addresses of their own, and LLVM takes it */
    bool whole64;                  /* f64 <-> 64-bit integers are instructions on vectors */
    bool round;                    /* floor, ceil, trunc, rint are instructions or inline code */
    const char *vector_width;      /* prefer-vector-width */
    uint32_t vector_bytes;         /* of a register of x86; 0: another architecture */
    struct llvm_machine *next;
};

/* Line tables into a text of loop IR (llvm_debug.c); builder NULL: none. */
struct debug {
    LLVMDIBuilderRef builder;
    LLVMMetadataRef file, type;
    LLVMMetadataRef function, scope;     /* being emitted: where it comes from, and where its text is */
    uint32_t line;                       /* that it comes from */
};

struct emitter {
    const struct llvm_machine *machine;
    struct lfunc *f;
    LLVMContextRef ctx;
    LLVMModuleRef module;
    LLVMBuilderRef b;
    LLVMTypeRef i1, i8, i16, i32, i64, i128, f32, f64, ptr, nothing;
    LLVMValueRef fn, begin, end, scratch, run;
    LLVMValueRef index;            /* what mcc_rt_fail is told: the parallel index, 0 outside */
    LLVMValueRef *values;          /* by lreg.i; NULL: not defined yet */
    uint64_t *limit;               /* by lreg.i: the index is 0 .. limit; RANGE_UNKNOWN: no such thing is known */
    int64_t *local_offset;         /* by lreg.i of the LOCAL; -1: none yet */
    int64_t local_next;
    LLVMBasicBlockRef entry;       /* where allocas go */
    LLVMBasicBlockRef exit;        /* leaves the function; NULL: none yet */
    LLVMValueRef even_bytes[3];    /* of llvm_dot.c */
    LLVMValueRef launch_args;      /* one array, as long as the longest launch */
    uint32_t depth;
    struct debug debug;
    uint32_t line;                 /* of the function's text in that of debug; 0: no line tables */
    const char *origin;            /* "file:line" of its beginning; "": that line */
    bool is_static;                /* without a runtime (llvm_static.c) */
    uint64_t frame;                /* bytes, once an object was made of a static network's function */
    LLVMValueRef tile_memory;      /* of the frame, for the shapes of tiles, released in the end; NULL: none */
    bool tiles_set;                /* all products have the same shapes, set before the body */
    bool nontemporal;              /* some store was: the function ends with a fence */
    const char *error;             /* sticky */
};

/* The reason if memory ended; the worker tells it as a limit, not as an internal error. */
#define EMIT_NO_MEMORY "out of memory"
void emit_fail(struct emitter *, const char *why);

/* ---- types and constants (llvm_types.c) ---- */

LLVMTypeRef type_scalar(struct emitter *, enum elem);                 /* in registers; bool is i1, f16 is i16 ... */
LLVMTypeRef type_memory(struct emitter *, enum elem);                 /* in memory; bool is i8 */
LLVMTypeRef type_lanes(LLVMTypeRef scalar, uint32_t lanes);           /* lanes 1: the scalar itself */
LLVMTypeRef type_value(struct emitter *, struct ltype);
bool elem_is_float(enum elem);
bool elem_is_native_float(enum elem);   /* f32, f64: computed as they are; other floats are bits */
bool elem_is_signed(enum elem);
LLVMValueRef const_int(struct emitter *, LLVMTypeRef scalar, uint32_t lanes, int64_t);
LLVMValueRef const_like(struct emitter *, struct ltype, int64_t);      /* an integer of that type */
LLVMValueRef const_float(struct emitter *, LLVMTypeRef scalar, uint32_t lanes, double);
LLVMValueRef value_splat(struct emitter *, LLVMValueRef scalar, uint32_t lanes);
/* Calls the intrinsic `name` overloaded on types[n_types]. */
LLVMValueRef call_intrinsic(struct emitter *, const char *name, LLVMTypeRef *types, unsigned n_types,
                            LLVMValueRef *args, unsigned n_args);
/* Calls an external function, declaring it on first use: hidden, nounwind. */
LLVMValueRef call_external(struct emitter *, const char *name, LLVMTypeRef result, LLVMValueRef *args, unsigned n);
/* Constant data of another object, hidden. */
LLVMValueRef external_global(struct emitter *, const char *name, LLVMTypeRef type);

/* ---- what is known of indices (llvm_range.c) ---- */

#define RANGE_UNKNOWN UINT64_MAX
void range_learn(struct emitter *, const struct lstmt *);                     /* of a statement's result */
void range_of_variable(struct emitter *, lreg var, lreg lo, lreg hi);         /* lo <= var < hi */
bool range_is_natural(const struct emitter *, lreg);                          /* 0 or more */
/* On a machine of 32-bit words: is it 0 or more, and below 2^31? Then its low word says all, and what uses no more of
 * it leaves the upper one uncomputed. */
bool range_in_word(const struct emitter *, lreg);
LLVMValueRef low_word(struct emitter *, LLVMValueRef);

/* ---- statements ---- */

/* The end of a block and a source line, to which the builder returns after it was placed before an instruction. */
struct place {
    LLVMBasicBlockRef block;
    LLVMMetadataRef line;
};
static inline struct place place_of(const struct emitter *e)
{
    return (struct place){LLVMGetInsertBlock(e->b), LLVMGetCurrentDebugLocation2(e->b)};
}
static inline void place_again(const struct emitter *e, struct place at)
{
    LLVMPositionBuilderAtEnd(e->b, at.block);
    LLVMSetCurrentDebugLocation2(e->b, at.line);
}

static inline LLVMValueRef operand(const struct emitter *e, const struct lstmt *s, uint32_t i)
{
    return e->values[s->in[i].i];
}
static inline struct ltype operand_type(const struct emitter *e, const struct lstmt *s, uint32_t i)
{
    return lf_type(e->f, s->in[i]);
}
LLVMBasicBlockRef block_new(struct emitter *);
LLVMValueRef index_const(struct emitter *, int64_t);
void emit_block(struct emitter *, lblock, LLVMValueRef *yields);      /* llvm_emit.c: statements with their blocks */
void emit_leave(struct emitter *);
LLVMValueRef emit_value(struct emitter *, const struct lstmt *);      /* llvm_ops.c: one-result computations */
struct conversion {
    bool saturate;
    enum round_mode rounding;
};
LLVMValueRef emit_convert(struct emitter *, LLVMValueRef, enum elem from, enum elem to, uint32_t lanes,
                          struct conversion);
/* Small floats, held as bits, to and from f32 (llvm_float.c). */
LLVMValueRef small_to_f32(struct emitter *, LLVMValueRef bits, enum elem from, uint32_t lanes);
LLVMValueRef small_from_f32(struct emitter *, LLVMValueRef, enum elem to, uint32_t lanes, struct conversion);
/* f16, held as bits. L_FMA: rounded once; args are used up. A lane, and one for all, as floats, so that a multiply-add
 * takes the lane itself. */
LLVMValueRef half_fma(struct emitter *, uint32_t lanes, LLVMValueRef args[3]);
LLVMValueRef half_extract(struct emitter *, LLVMValueRef, uint32_t lanes, LLVMValueRef lane);
LLVMValueRef half_splat(struct emitter *, LLVMValueRef, uint32_t lanes);
void dot_learn(struct llvm_machine *);                                /* llvm_dot.c: fills in dot_forms */
/* Lanes list[0..n) of a and b side by side; one lane gives a scalar, scalars count as vectors of one lane. */
LLVMValueRef shuffle_lanes(struct emitter *, LLVMValueRef a, LLVMValueRef b, const uint8_t *list, uint32_t n);
LLVMValueRef emit_divide(struct emitter *, const struct lstmt *);     /* llvm_divide.c: DIV, REM */
LLVMValueRef emit_floordiv(struct emitter *, const struct lstmt *);   /* FLOORDIV, FLOORMOD */
LLVMValueRef emit_dot(struct emitter *, const struct lstmt *);        /* DOT */
LLVMValueRef emit_ldexp(struct emitter *, const struct lstmt *);      /* LDEXP */
LLVMValueRef emit_matdot(struct emitter *, const struct lstmt *);     /* MATDOT */
void emit_prefetch(struct emitter *, LLVMValueRef address, bool near); /* llvm_memory.c: into L1, else L2 */
LLVMValueRef emit_matmul(struct emitter *, const struct lstmt *);     /* llvm_matmul.c: MATMUL, which has no result */
void matmul_begin(struct emitter *);                                  /* before the function's body */
void set_invariant(struct emitter *, LLVMValueRef load);              /* nothing writes what it reads */
/* llvm_table.c: bytes of the LOOP_TABLE at base by the bytes x, several. */
LLVMValueRef emit_byte_table(struct emitter *, LLVMValueRef base, bool invariant, LLVMValueRef x, uint32_t lanes);
/* llvm_lookup.c: v converted, or what was looked up less by; NULL: not what a table serves. */
LLVMValueRef lookup_convert(struct emitter *, LLVMValueRef v, enum elem from, enum elem to, uint32_t lanes);
LLVMValueRef lookup_less(struct emitter *, LLVMValueRef v, LLVMValueRef by);
/* All lanes / any lane of a predicate. */
LLVMValueRef mask_all(struct emitter *, LLVMValueRef, uint32_t lanes);
LLVMValueRef address_of(struct emitter *, LLVMTypeRef scalar, LLVMValueRef base,
                        LLVMValueRef index);   /* llvm_address.c */
void address_sweep(struct emitter *);                                 /* deletes index arithmetic that nothing uses */
LLVMValueRef emit_memory(struct emitter *, const struct lstmt *);     /* llvm_memory.c: LOAD ... SCATTER, buffers */

/* ---- static networks (llvm_static.c) ---- */

void static_begin(struct emitter *); /* of an entry: makes the run */
LLVMValueRef static_code(struct emitter *); /* what the entry returns */
void static_fail(struct emitter *, int64_t code);
/* Calls the function over [0, count); did all of it succeed? */
LLVMValueRef static_launch(struct emitter *, LLVMValueRef function, const struct lstmt *, LLVMValueRef count);
LLVMValueRef static_call(struct emitter *, const struct lstmt *);

/* ---- line tables (llvm_debug.c) ---- */

struct debug_text {
    const char *file, *folder;     /* file "": no line tables */
};
void debug_begin(struct emitter *, const struct debug_text *);
void debug_function(struct emitter *, const char *symbol); /* what follows is of where the function comes from */
void debug_line(struct emitter *, const struct lstmt *); /* what follows is of the statement */
void debug_end(struct emitter *);

/* ---- modules ---- */

/* Fills e->module with f as the function `symbol` (llvm_function.c). False: e->error says why. */
bool emit_function(struct emitter *, const char *symbol);

struct compiled {
    char *data;
    size_t size;
    bool failed;
}; /* data: malloc'ed; failed: a text why */
struct function {
    const char *symbol;
    struct lfunc *f;
    uint32_t line; /* of its text, for line tables */
    const char *origin; /* codegen_unit's, "" or NULL: none */
};
/* A function as a module -> object, assembly or LLVM text (llvm_compile.c). is_static: of a static network; the bytes
 * of its frame, a uint64_t, follow an object. */
struct compiled llvm_compile(const struct target *, int opt_level, enum emit_kind, bool is_static,
                             const struct debug_text *, const struct function *);
void llvm_start(void); /* once in a worker: targets, options, fatal error handler */

/* ---- C++ behind C (lld.cpp) ---- */

bool machine_has(LLVMTargetMachineRef, const char *feature); /* "+fma" */
/* What makes objects of modules, one after the other: LLVM's passes are set up once, which takes as long as the code of
 * some hundred instructions. NULL: the target has no object writer. The object's bytes stay until the next one. */
struct generator;
struct generator *generator_new(LLVMTargetMachineRef);
const char *generator_run(struct generator *, LLVMModuleRef, size_t *size);
/* Runs ld.lld on argv; its messages, malloc'ed, in *text. True: linked. */
bool lld_link(const char *const *argv, unsigned argc, char **text, int *failed);
