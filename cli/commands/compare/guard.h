/* The memory of an artifact whose code is judged, and a run of that code that may end in a signal. */
#pragma once

#include "ir/base/base.h"
#include "runtime/mcc.h"

/* Blocks between pages that nobody may touch. What a block does not fill of its own pages keeps its marks. */
struct guard {
    VEC(struct guarded {
        unsigned char *data;  /* what the artifact has; it ends with its pages, except for the alignment */
        unsigned char *first; /* of its pages */
        size_t size;          /* of data */
        size_t pages;         /* their bytes */
        bool used;
    })
    blocks;
};
/* The content of bytes that have not been written: as f32 a residue (ir/ops/field.h), and a NaN. */
enum { GUARD_MARK = 0x5b, GUARD_NAN = 0xff };

void *guard_alloc(struct guard *, struct arena *, size_t bytes, size_t align);
void guard_release(struct guard *, void *);
/* Are all marks as they were? */
bool guard_holds(const struct guard *);
/* Frees unused blocks if there are many, as sizes that the data decides differ from run to run, or in any case. */
void guard_trim(struct guard *, bool all);
/* Gives the memory back. */
void guard_end(struct guard *);

/* Fills with the byte what kernels may have left to others, or to themselves: before a run its whole workspace
 * (scratch, and all that the plan places), before a kernel the scratch of the threads. */
void guard_spoil_work(mcc_ctx *, int byte);
void guard_spoil_scratch(mcc_ctx *, int byte);

/* Runs code(user). The signal in which it ended (a fault); 0: none. After one the code is not called again. */
int guard_call(struct context *, void (*code)(void *user), void *user);
