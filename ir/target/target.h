/* The table of target CPUs, ir/target/target.def, as rows. */
#pragma once

#include "ir/base/base.h"

enum dot_kind { DOT_U8, DOT_BF16, DOT_KINDS };   /* u8 by i8 in fours, bf16 in twos */
/* What the multiply-adds of a kernel are of, and that its instructions for them are of tiles: what their peak depends
 * on. Artifacts have the numbers. */
enum products {
    PRODUCTS_NONE, /* there are none, or of other types */
    PRODUCTS_F32,
    PRODUCTS_BF16,
    PRODUCTS_INT8,
    PRODUCTS_BF16_TILES,
    PRODUCTS_INT8_TILES,
    PRODUCTS
};
extern const char *const products_names[PRODUCTS]; /* "f32", "int8-tiles"; PRODUCTS_NONE: NULL */
enum { DOT_SIGNED = 1, DOT_WHOLE = 2, DOT_MATRIX = 3 };
struct machine {                 /* what the passes choose by; 0 in a member: unknown */
    uint32_t vector_bytes;       /* 64, 32, 16 */
    uint32_t registers;          /* of vectors */
    uint32_t fma_per_cycle, fma_latency, loads_per_cycle;   /* whole vectors */
    uint32_t l1_kib, l2_kib, l3_kib;                        /* data, one core's share */
    uint8_t dot[DOT_KINDS]; /* L_DOT is one instruction: 2; 3: L_MATDOT is one as well; 1: of signed bytes only;
                               0: not */
    uint8_t span; /* of a microcontroller, bytes along the channels that L_DOT sums in each lane: 4; 16, a register of
                     them in one lane; 1: none, each is extended. 0: 4, of a depthwise convolution's taps as well */
    uint8_t words; /* single registers, in which a core without vectors has integers; 0: they lie in vectors */
    bool fma_by_lane; /* a multiply-add takes one lane of a register for all */
    bool strict; /* it rounds once, as on every other such CPU: code for it can have strict results */
    bool tiles; /* L_MATMUL is instructions, of registers of 16 rows; of the features that code is made for */
    bool fp16; /* multiply-adds of f16; not of the row, but of the features that code is made for */
};
enum target_when { TARGET_NAMED, TARGET_OF_USE, TARGET_ALWAYS };
struct target_row {
    const char *arch, *name;
    enum target_when when; /* it is part of an artifact, unless options say otherwise */
    const char *cpu, *features; /* as LLVM names them */
    struct machine machine;
};

extern const struct target_row target_rows[]; /* best first within an architecture */
extern const uint32_t target_count;

/* The row of that name; NULL: none. */
const struct target_row *target_find(const char *name);
/* What the name of row t ends in, "v3" for "x86-64-v3"; all of it where another of these n rows, of the same
 * architecture, ends so. */
const char *target_short_name(const struct target_row *rows, uint32_t n, const struct target_row *t);
/* The whole table as text, for people. */
void target_print(struct strbuf *);
