/* mcc prove --machine: what its files share. code_check.c runs the programs of an artifact in the interpreter of the
 * loop IR; code_launch.c compares each launch of a kernel's machine code with the loop IR; code_symbols.c finds
 * functions in the artifact; code_report.c says what was found. */
#pragma once

#include "cli/commands/compare/capture.h"
#include "cli/commands/compare/guard.h"
#include "cli/commands/compare/sizing.h"
#include "cli/library/json.h"
#include "ir/loop/interp/interp.h"
#include "runtime/rt_internal.h"

/* Of a function of the loop IR and its machine code: a unit of the compilation. */
struct agreement {
    struct lfunc *f;      /* NULL: not parsed yet */
    uint32_t draws;       /* launches that were compared, each time the values were drawn */
    uint32_t seen;        /* launches in the run at hand */
    int64_t indices, of;  /* parallel indices that were compared, of these launches */
    int64_t elements;     /* that were stored, all compared */
    bool zeros;           /* the loop IR leaves the sign of a zero open (L_MIN, L_MAX) */
    bool subnormals;      /* the loop IR lets subnormals count as 0 (bf16 products, round "normal") */
    const char *differs;  /* where and how; NULL: nowhere */
    const char *why;      /* it could not be compared; NULL: it could */
};
/* Memory of the run, of which the interpreter has a copy. */
struct code_region {
    unsigned char *real, *shadow; /* the same: it is only read */
    int64_t bytes;
    bool used; /* by the launch at hand */
};
struct touched {
    unsigned char *at; /* in the interpreter's copy */
    uint64_t old;
    enum elem elem;
};
/* Parallel indices that were interpreted together; stores: the first of them in the log. */
struct indices {
    int64_t begin, end;
    uint32_t stores;
};
struct code_symbol {
    const char *name;
    uint64_t at;
};

struct code_check {
    struct capture run; /* the compilation and the loaded artifact; nothing is captured */
    struct sizing sizing;
    VEC(struct code_symbol) symbols;
    uintptr_t base; /* of their addresses */
    uint32_t variant;
    bool unfused;
    bool open; /* some sizes are not given, of which few are drawn */
    struct agreement *of; /* by unit */
    struct code_variant {
        const char *name;
        bool ran;              /* this CPU runs it */
        bool any;              /* some kernel stored something */
        const char *program;   /* why the program's machine code does not agree; NULL: it does */
    } *variants;
    struct mcc_ctx *native; /* the artifact's */
    void *weights; /* a copy, which may change */
    VEC(struct code_region) regions;
    VEC(struct touched) stores, loads;
    VEC(struct indices) indices;
    uint32_t tried;    /* of these: until the interpreter ended early */
    bool records;      /* loads */
    bool partial;      /* the last of these was not interpreted to its end */
    uint64_t state;    /* of what is drawn */
    struct guard guard;
    DLManagedTensorVersioned **out; /* of the artifact's run at hand, ... */
    int code;
    uint32_t events;   /* ... begins and ends of kernels in it, ... */
    bool spoils;       /* ... each of which finds NaN in its scratch */
    struct lfunc *program; /* interpreted with these */
    const struct linterp_arg *args;
    struct linterp_result result;
    struct bounds *bounds; /* mcc diff --bounds: launches are not compared but bounded (bounds.h); NULL: compared */
};

/* Compiles the network to `library`, loads it and compares each variant that this CPU runs; in a context of its own.
 * NULL after a diagnostic. */
struct code_check *code_run(struct context *, const struct options *, const char *library);

/* Of a run that diff has kept, in the variant that it took: interprets plan and program with its launches (bounds).
 * NULL, or why that does not work. */
const char *code_program(struct code_check *, const char *library);

/* Reads the symbols of the loaded library; false after a diagnostic. */
bool code_symbols(struct code_check *, const char *library);
/* The address of a function, whose symbol may end in ".node"; 0: there is none. */
uintptr_t code_symbol(const struct code_check *, const char *name);

/* linterp_host.launch and .call of a program, with the check as user: compares, then runs. */
int code_launch(void *user, const struct lstmt *, const struct linterp_arg *, uint32_t n, int64_t count);
int64_t code_call(void *user, const char *name, const struct linterp_arg *, uint32_t n, bool *failed);
/* Memory that kernels may get. shared: the interpreter has no copy, as nobody writes. */
void code_region(struct code_check *, void *data, int64_t bytes, bool shared);
/* The machine's element of one in the interpreter's copy. */
unsigned char *code_real(const struct code_check *, unsigned char *shadow);
/* The parsed function of unit i; NULL after a diagnostic. */
struct lfunc *code_function(struct code_check *, uint32_t i);

/* Does all agree? NULL: it was not asked for. */
bool code_agrees(const struct code_check *);
/* Nothing, and null, where it was not asked for. */
void code_put(const struct code_check *, struct strbuf *);
void code_put_json(const struct code_check *, struct json *);
