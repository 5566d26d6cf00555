/* The pass from imported to legal graphs, and its table of operators. Those after it are rows of
 * passes/module/passes.def. */
#pragma once

#include "ir/graph/probe.h"
#include "ir/loop/loop.h"

/* What the user says of an input: --input 'x:f32[batch=1..64,3,224,224]'. */
struct input_spec {
    const char *name;
    enum elem elem; /* ELEM_NONE: as the file says */
    int32_t rank; /* RANK_UNKNOWN: as the file says */
    const expr_id *dims; /* symbols by name; {0}: as the file says */
};
#define LOGITS "logits"
#define LORA_RANK "lora_rank" /* the size that all adapters share */
enum bytes_when { BYTES_BY_FILE /* accuracy_level 4 */, BYTES_ALWAYS, BYTES_NEVER };
struct legalize_options {
    const struct input_spec *inputs;
    uint32_t n_inputs;
    int32_t unroll_nodes; /* static loops unroll while the result stays under this many nodes */
    enum bytes_when bytes; /* does MatMulNBits take its activations as bytes? */
    bool signed_bytes; /* products of bytes are of two signed ones: else the first is unsigned */
    uint8_t few_channels; /* of so many channels of bytes and more, zeros fill groups of four: fewer are single */
    /* What was chosen for the products of this label, of ARITHMETIC_INT8 (*range) and _DYNAMIC; else ARITHMETIC_F32. */
    enum arithmetic (*chosen)(void *user, const char *label, bool is_conv, struct operand_range *range);
    void *user;
    struct product_probe *probe; /* NULL: nobody asks */
    enum elem cache_type; /* of outputs that are inputs with new rows, and of these; ELEM_NONE: as the file says */
    const char *adapters; /* RANK[:TARGETS]: products by constants take adapters of up to this rank; NULL: none does */
    bool strict; /* a row of a batch has the bits that it has alone (struct builder) */
    bool last_logits; /* of the output LOGITS [batch, positions, words] only the last position is wanted */
};
/* Imported graph -> legal graph: types inferred, shape arithmetic folded, constant predicates resolved (dead branches
 * are never looked at), functions inlined, every operator lowered to core operators. Reports *all* that it cannot
 * serve, then NULL. */
struct graph *legalize(struct context *, struct graph *imported, const struct legalize_options *);

/* The rows of the table that legalize uses (passes/legalize/rules.def), as it has them: since is the least version that
 * the row is for, which need not be one of the operator's. Texts are static; the default domain is "". */
struct op_row {
    const char *domain, *op;
    int32_t since;
    const char *lowering, *note;
};
uint32_t legalize_row_count(void);
struct op_row legalize_row(uint32_t i);
/* Do nodes of this version of the row's operator go to that row? */
bool legalize_row_serves(uint32_t i, int32_t version);
