/* mcc diff --bounds: of what each kernel of a run has stored, how far rounding can have moved it. */
#pragma once

#include "cli/commands/compare/code_check.h"

/* An element that the interpreter has stored. */
struct bound_entry {
    uintptr_t at; /* in the run's memory; 0: none */
    double error; /* NaN: what is there was stored by a part of an index */
    uint32_t kernel, launch;
};
struct bounds {
    struct bound_entry *table;  /* by address, linear probing */
    uint64_t cap, n;
    uint32_t kernel, launch;    /* at hand */
    uint32_t launches;
    const unsigned char *weights;
    int64_t weights_bytes;
    bool blind;                 /* errors that later kernels start from are not known */
    VEC(uintptr_t) written;     /* by the indices at hand */
    struct kernel_bounds {
        bool kept;              /* the run has kept all that it stores, and others start from that */
        bool partial;           /* of a launch not all indices were interpreted */
        const char *why;        /* it has no bounds; NULL: it has */
    } *of;
    double **error; /* by value, its elements in row-major order: NaN is not known, infinite no bound; NULL: of none */
};

/* Of the elements of one value. */
struct bounded {
    value_id value;
    int64_t of, n, outside; /* elements: all, with a bound, farther than it */
    int64_t at; /* the one that comes closest to its bound, or is farthest beyond it; -1: none */
    double got, want, bound, share; /* there; share: of the bound */
};
/* Compares got with want, both of f64 or both not, and puts want's elements in the place of those of got that lie
 * inside. */
struct bounded bounds_judge(const struct bounds *, value_id, const struct tensor *want, void *got);
/* Rows of what was compared, as text or JSON. */
void bounds_put(const struct bounds *, const struct capture *, const struct bounded *rows, uint32_t n, bool all,
                struct strbuf *);
void bounds_put_json(const struct bounds *, const struct capture *, const struct bounded *rows, uint32_t n,
                     struct json *);

/* Interprets the program of the run that was kept (capture.h), with bounds. NULL after a diagnostic. */
struct bounds *bounds_of(const struct capture *, const char *library);

/* Of code_launch.c: linterp_host.read_error and write_error, with the check as user; after indices that were
 * interpreted together; and before and after those of a launch of a unit with this symbol. */
double bounds_read(void *user, enum elem, const void *at);
void bounds_write(void *user, enum elem, void *at, double error);
void bounds_indices(struct code_check *, bool whole);
/* False: nothing is to be interpreted. */
bool bounds_begin(struct code_check *, const char *symbol);
void bounds_end(struct code_check *, bool all);
