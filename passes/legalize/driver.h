/* What legalize.c shares with the files that walk regions: state of one run of the pass. */
#ifndef MCC_PASSES_LEGALIZE_DRIVER_H
#define MCC_PASSES_LEGALIZE_DRIVER_H

#include "passes/legalize/legalize.h"

struct row {
    const char *domain, *op;
    int32_t since;
    rule_fn *rule;
    const char *rule_name;
    int param;
    const char *note;
};
/* The row with the largest version <= version; NULL: no such operator, or none so old. */
const struct row *row_find(const char *domain, const char *op, int32_t version);

/* Operators that could not be served, one record per (domain, operator, version, reason). */
struct refusal {
    const char *domain, *op, *reason;
    const char *types;           /* of the first one's operands: "f32[n,4], i64[]" */
    int32_t version;
    uint32_t count;
    src_id first[3];
};

/* A function call being inlined: where its attribute references look. */
struct frame {
    const struct frame *caller;
    const struct model_function *function;
    const struct node *call;
    uint32_t depth;
};

struct legalizer {
    struct context *ctx;
    const struct graph *from;
    struct graph *to;
    struct builder b;
    struct lval *map;              /* by imported value id */
    bool *live;                    /* by imported node id */
    const struct legalize_options *options;
    const struct frame *frame;
    VEC(struct refusal) refusals;
    struct arena *arena;           /* the legal graph's */
};

bool walk_region(struct legalizer *, region_id);
bool legalize_call(struct legalizer *, const struct node *, const struct model_function *);
void legalize_refuse(struct legalizer *, const struct node *, const char *reason);
void legalize_report(struct legalizer *);

#endif
