/* mcc prove: what its files share. prove.c compiles, draws and runs; sizes.c draws at other sizes; verdict.c judges
 * kernels; certificate.c says what was found. */
#pragma once

#include "cli/commands/compare/capture.h"
#include "cli/commands/compare/guard.h"
#include "cli/commands/compare/integers.h"
#include "cli/commands/compare/sizing.h"
#include "ir/eval/eval.h"

/* What a proof stands on besides the laws of fields and of total orders (docs/reference/proof.md). */
enum axiom {
    AXIOM_REALS,
    AXIOM_FRACTIONS,
    AXIOM_FUNCTIONS,
    AXIOM_EXPONENTIALS,
    AXIOM_UNDERFLOW,
    AXIOM_ROUNDING,
    AXIOM_LIMITS,
    AXIOM_INTEGERS,
    AXIOM_RUNTIME,
    AXIOM_COUNT
};
struct axiom_text {
    const char *name, *says;
};
extern const struct axiom_text axioms[AXIOM_COUNT];

struct verdict {
    uint32_t seen, differs;  /* draws; seen: all that it stores was compared */
    uint32_t compared;       /* values, in the draw at hand */
    int64_t here;            /* the most elements of one of them */
    uint32_t filled;         /* draws in which elements were compared */
    uint32_t ran;            /* draws in which it was launched */
    double shows;            /* chance_shows() of all draws, of the worst of its nodes */
    double choices;          /* chance_choices() of all draws, of the worst */
    double integers;         /* integers_shown() so far, of the worst */
    int64_t elements, wrong; /* of the first draw that differs */
    uint32_t marked, blocks; /* of loops and branches these have run often */
    const char *tells; /* draws prove it only where floats are often equal, and have to show that; NULL: others do */
    double told;       /* what they have shown, as of integers; of the worst of its nodes */
    const char *why; /* it cannot be proved; NULL: nothing stands against it */
    bool narrows; /* its code makes narrow floats of residues, few of which differ */
    bool floats; /* its code has no meaning in the field, and stayed that of floats: what it computes says nothing */
    bool uses[AXIOM_COUNT];
};

/* Of a CPU variant. */
struct certificate {
    const char *variant;
    struct verdict *of;        /* by kernel; NULL: this CPU does not run it */
    const char *interpreted;   /* why the interpreter ended early; NULL: it did not */
    const char *why;           /* the program is not proved; NULL: all outputs were equal in each draw */
    struct strbuf sizes;       /* "n=1; n=2" */
    struct strbuf more;        /* those of single kernels only (single.h) */
    const char *size[256]; /* each of all these */
    uint32_t n_sizes;
    uint32_t draws, proved;
    uint32_t single; /* further draws, that judge single kernels */
    bool *filled; /* by output: one of its elements was compared */
    bool any; /* so it is of each output, except for those that never have any */
    const char *ended; /* a draw was given up, and why: no others are drawn; NULL: none was */
    bool whole; /* each size that the network takes, or that was asked for, was drawn */
};

struct prove {
    struct capture run; /* first: the host's callbacks get it */
    struct context *code_context; /* owns `machine`, until it is printed; NULL: none */
    struct code_check *machine; /* NULL: not asked for */
    struct guard guard;
    struct tensor **want;      /* by value */
    uint32_t *makes;           /* by value: 1 + the kernel that stores it; 0: none */
    struct context *apart;     /* of the graph after legalization */
    struct arena draw, draw_apart; /* in the two contexts: what one draw needs */
    struct graph *legal;
    bool limits; /* axiom limits has changed it */
    struct sizing sizing;
    struct certificate *all, *now;
    uint32_t variant; /* of `now` */
    struct integers integers;
    bool many;    /* draws are needed for the variant's kernels, as they compute with integers */
    bool calls; /* the program calls functions of the runtime */
    bool by_data; /* sizes come from drawn data, which may ask for any memory */
    size_t fed;   /* bytes of the inputs */
    struct {
        bool *keep;   /* by value */
        bool *chosen; /* by kernel */
        bool all;     /* each kernel that is asked for can be judged alone */
        bool gained;  /* a loop or branch has run in the last draw */
        enum {
            PART_BLOCKS, /* kernels with a loop or branch that has run in few draws */
            /* kernels that have two parallel indices at size part.size; beyond LATER_LEAST draws only if the second
             * index has run in few */
            PART_LATER,
            PART_CHOICES, /* kernels that have chosen for few elements */
            PART_INTEGERS, /* kernels that compute with integers, or store narrow floats */
            /* kernels that tell whether floats are equal, 0 or infinite, of which they have met few: what they read is
             * drawn, too */
            PART_TIES,
        } asks;
        bool *fresh; /* by value: the run replaces it by drawn floats where it is stored */
        uint64_t state; /* of these, in draw number `draw` */
        uint32_t draw;
        const struct integer_role *role; /* by value of the kernels' graph; NULL: not known yet */
        bool skips; /* kernels whose results are drawn in their place do not run */
        bool unskipped; /* such a draw has shown a difference: from now on all kernels run */
        bool again; /* the draw at hand is repeated so */
        bool ends; /* the run has ended after the last kernel that is chosen */
        int64_t *sizes; /* by kernel: the largest at which it has two parallel indices; 0: there is none */
        int64_t size;
        uint32_t turn; /* counts the draws at sizes around part.size, and those of ties */
        uint32_t attempt; /* the run took the last draw in about so many attempts; others of sizes begin there */
    } part; /* single.h */
    unsigned char *marks; /* of loops and branches that ran in the draw at hand (lf_field); NULL: not there yet */
    unsigned char *skips; /* by the first mark of a function: its parallel loop does not run (lf_field) */
    uint32_t *runs; /* by mark: the draws in which it was set */
    bool *later; /* by mark: it belongs to the parallel indices after the first */
    bool *never; /* by mark: sizes rule it out (never.c); NULL: not computed yet */
    DLManagedTensorVersioned **out;
    int code; /* of the run at hand */
    uint32_t events; /* of the draw at hand */
    uint64_t allocated; /* bytes that all runs have asked for */
    size_t largest; /* bytes of the largest block that the run at hand has asked for */
    int64_t refusals; /* elements that the interpreter may still compute on draws that the variant refuses */
    uint32_t endless; /* draws of the variant that ran too long */
    uint64_t rest; /* elements of inputs that draws of further sizes may still have */
    bool resized; /* the next draw has other sizes: blocks of those before are of no use */
    bool few; /* integers are drawn from 0 and 1 */
    uint32_t least; /* draws that all kernels need */
    uint32_t choosing; /* further draws because kernels choose among elements; 0: none so far */
    bool compared; /* integers are drawn from those that the network compares with */
    bool tied; /* floats are drawn from few numbers */
    bool special; /* some of these are infinite or NaN, because the variant tests for them */
    uint8_t *read_by; /* by value, what depends on it: PROVE_TESTS, PROVE_ORDERS */
    double *ties; /* by value: argreduce's choices among equal elements */
    double *infinite; /* two by value: elements +inf, then -inf, of which isinf computed it */
    const struct tensor **given; /* by value: inputs of the draw at hand */
    bool larger; /* one number that decides sizes is a larger one */
    bool done; /* each variant that this CPU runs was drawn */
};

/* Draws that every proof needs; those of programs that call functions of the runtime, whose results few draws may show,
 * as a comparison with the last one does in one of two; draws in which each loop and branch has to run that only some
 * sizes reach, as a choice (a maximum with 0) leaves half of the elements out of each. */
enum { PROVE_DRAWS = 4, PROVE_CALLS = 16, PROVE_RUNS = 8, PROVE_FEW = 6, PROVE_FEW_MOST = 24, PROVE_TRIPS = 4 };
/* Bytes of a block where data decides sizes, and more for each byte of the inputs. */
enum { PROVE_BY_DATA = 1 << 22, PROVE_BY_DATA_EACH = 64 };
/* Begins and ends of kernels in a run of drawn values, which may have loops without end; and what is said of more. */
enum { PROVE_EVENTS = 1 << 17 };
#define PROVE_ENDLESS "a loop of the network runs too long on drawn values"
#define PROVE_TOO_LARGE "the network needs more memory on drawn values than the interpreter may have"
#define PROVE_BEYOND "its code wrote beyond its memory"
#define PROVE_FAULT "its code ended with signal %d"
/* As many begins and ends of a run are followed by spoiling scratch. */
enum { PROVE_SPOILED = 1 << 10 };

static inline uint32_t prove_kernels(const struct prove *p)
{
    return p->run.c.module->fused.kernels.n;
}
static inline const struct kernel *prove_kernel(const struct prove *p, uint32_t i)
{
    return &p->run.c.module->fused.kernels.data[i];
}

/* The kernel as the variant has it. */
static inline const struct kernel *prove_code(const struct prove *p, uint32_t i)
{
    return &p->run.c.levels.data[p->variant][i];
}

/* Before the draws of a variant: objections to each kernel, and the axioms that it needs. False after a diagnostic. */
bool verdict_begin(struct prove *);
/* What became of the function of prove_code, or of its other version, whose floats are residues; NULL: it has none. */
const struct lowered_kernel *verdict_lowered(const struct prove *, const struct kernel *code);
/* Finds loops and branches that no sizes of the kernels' values let run, of those that have not run. */
void never_find(struct prove *);
/* The same by residue classes of sizes that have no small bound. */
void never_find_open(struct prove *);
/* Has some loop or branch of the variant not run in PROVE_RUNS draws? Has one of these in the draw at hand? */
bool verdict_lacks(struct prove *);
/* Does a kernel that ran choose between so few elements, or seldom enough among many, that more draws are needed and
 * will do? Any choice among many takes two more than the least. */
bool verdict_lacks_choices(const struct prove *, uint32_t drawn, uint32_t least);
bool verdict_lacks_choices_of(const struct prove *, uint32_t kernel, uint32_t drawn, uint32_t least);
/* Do draws of few different floats lack, of which so many were there, and will no more than CHANCE_MOST do? */
bool verdict_lacks_ties(const struct prove *, uint32_t drawn);
bool verdict_lacks_ties_of(const struct prove *, uint32_t kernel, uint32_t drawn);
/* Have a kernel's integers shown few of their values, of all draws, and may more draws do? A kernel that computes with
 * integers lacks the first `least` draws in any case. */
bool verdict_lacks_integers(const struct prove *, uint32_t drawn, uint32_t least);
/* Have the kernel's parallel indices after the first run in few draws, or in none? */
bool verdict_lacks_later(const struct prove *, uint32_t kernel);
bool verdict_gains(const struct prove *);
bool verdict_gains_of(const struct prove *, uint32_t kernel);
void verdict_end(struct prove *);
/* What the draw at hand says of each kernel. */
void verdict_count(struct prove *);
/* Of one kernel, of which alone the draw says something: the loops and branches that ran, and its choices. False: it
 * was not compared. */
bool verdict_count_of(struct prove *, uint32_t kernel);
/* After that: what all draws have told of its choices and integers, whether it ran in the one at hand or not. */
void verdict_count_told(struct prove *, uint32_t kernel);
/* The node tells whether floats are equal, or the like, and draws have to show that. */
bool verdict_tells(const struct prove *, const struct node *);
/* Wants what a draw shows of a watched value; then, when the draw was evaluated, counts that. */
void prove_want(struct prove *, value_id);
void prove_count(struct prove *, value_id);
/* A comparison, or a test for NaN or infinity; an argreduce of floats, whose code orders NaN as the field does not. */
enum { PROVE_TESTS = 1, PROVE_ORDERS = 2 };
/* Floats of few numbers for value v, in draw `draw`. */
void prove_draw_tied(const struct prove *, value_id v, enum elem, void *data, size_t n, uint64_t *state, uint32_t draw);
/* Draws few floats, as long as kernels that tell equal ones have met few: for the whole network, then for single
 * kernels that still lack some, of which what they read is drawn, too, as sums and products of equal floats are seldom
 * equal.
 */
bool prove_draw_ties(struct prove *);
/* In so many draws a kernel has to run. */
uint32_t verdict_enough(const struct verdict *);
/* NULL: kernel i is proved. */
const char *verdict_against(const struct prove *, const struct certificate *, uint32_t i);
/* The same, but for what reads the values that it stores. */
const char *verdict_of_itself(const struct prove *, const struct certificate *, uint32_t i);
/* Is the program proved? */
bool verdict_holds(const struct certificate *);

/* Unless DRAW_ALL, nothing is compared if no loop or branch ran that has not run often; DRAW_PARTS: of the chosen
 * kernels, which alone are compared. */
enum drawing { DRAW_ALL, DRAW_GAINS, DRAW_PARTS };
/* Draw number `draw`, in up to INTEGER_ATTEMPTS attempts. False after a diagnostic. */
bool prove_draw(struct prove *, uint32_t draw, enum drawing);
/* One attempt: draws inputs and runs. False: the inputs have no integers, so that another one would end as this one. */
bool prove_attempt(struct prove *, uint32_t draw, uint32_t attempt);
void prove_release(struct prove *); /* the outputs of an attempt that has not failed */

/* Of a graph that has not entered the field: where the compiler did so, converts to bytes before maxima of windows,
 * moves limits next to the roundings, and drops those that saturation implies (limits.c). Returns whether there were
 * any. */
bool limits_move(struct graph *, const struct module_known *);

/* Compiles the network of the options and draws. False after a diagnostic; what was found is in p->all. */
bool prove_network(struct context *, const struct options *, struct prove *p);

/* What was found of each variant. How many are proved; then as text and as JSON. */
uint32_t certificate_count(struct prove *);
void certificate_text(const struct prove *, struct strbuf *);
void certificate_json(const struct prove *, bool all, struct json *);
/* One line of a variant of which all is proved, for the artifact's note. */
const char *certificate_note(const struct prove *, const struct certificate *, struct arena *);
