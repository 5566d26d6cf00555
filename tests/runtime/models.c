/* See models.h. */
#include "tests/runtime/models.h"

#include "runtime/ops/rt_ops.h"

#include <stdlib.h>
#include <string.h>

int64_t knob_ns = 1, knob_work, knob_repeats = 1;
void (*knob_chunk)(int64_t begin, int64_t end);
void (*knob_hook)(void);

#define POINTER(T, word) ((T *)(intptr_t)(word))

/* ---- pair ----------------------------------------------------------------------------------------------------- */

/* args: x, y, z */
static void pair_scale(const int64_t *args, int64_t begin, int64_t end, char *scratch, struct mcc_rt_run *run)
{
    const float *x = POINTER(const float, args[0]), *y = POINTER(const float, args[1]);
    float *z = POINTER(float, args[2]), *row = (float *)(void *)scratch;
    if (knob_chunk)
        knob_chunk(begin, end);
    for (int64_t i = begin; i < end; i++) {
        if (x[4 * i] > 1e6f) {
            mcc_rt_fail(run, MCC_E_VALUE, 1, "value out of range", i);
            return;
        }
        for (int j = 0; j < 4; j++)
            row[j] = 2 * x[4 * i + j];
        for (volatile int64_t turn = 0; turn < knob_work; turn++)
            ;
        for (int j = 0; j < 4; j++)
            z[4 * i + j] = row[j] + y[4 * i + j];
    }
}

/* args: z, s */
static void pair_sum(const int64_t *args, int64_t begin, int64_t end, char *scratch, struct mcc_rt_run *run)
{
    const float *z = POINTER(const float, args[0]);
    float *s = POINTER(float, args[1]);
    (void)scratch, (void)run;
    for (int64_t i = begin; i < end; i++)
        s[i] = z[4 * i] + z[4 * i + 1] + z[4 * i + 2] + z[4 * i + 3];
}

/* args: x, y, z, s, arena, weights, N */
static void pair_program(const int64_t *args, int64_t begin, int64_t end, char *scratch, struct mcc_rt_run *run)
{
    int64_t n = args[6];
    (void)begin, (void)end, (void)scratch;
    for (int64_t i = 0; i < knob_repeats; i++)
        if (mcc_rt_launch(run, pair_scale, (int64_t[]){args[0], args[1], args[2]}, n, 0, knob_ns))
            return;
    if (knob_hook)
        knob_hook();
    if (mcc_rt_launch(run, pair_sum, (int64_t[]){args[2], args[4]}, n, 1, knob_ns))
        return;
    if (n > 0)
        memcpy(POINTER(void, args[3]), POINTER(void, args[4]), (size_t)n * sizeof(float));
}

/* dims: x0 x1 y0 y1; out: N, arena, z0 z1, s0 */
static void pair_plan(const int64_t *args, int64_t begin, int64_t end, char *scratch, struct mcc_rt_run *run)
{
    const int64_t *dims = POINTER(const int64_t, args[0]);
    int64_t *out = POINTER(int64_t, args[1]);
    (void)begin, (void)end, (void)scratch;
    if (dims[0] == 13)
        mcc_rt_fail(run, MCC_E_SHAPE, 2, "N must not be 13", 0);
    int64_t made[] = {dims[0], 4 * dims[0], dims[0], 4, dims[0]};
    memcpy(out, made, sizeof made);
}

static const mcc_dim pair_rows[] = {{-1, 0, 0, NULL}, {4, 0, 0, NULL}};
static const mcc_port pair_in[] = {
    {"x", pair_rows, 2, {kDLFloat, 32, 1}, 0, 0, {0}},
    {"y", pair_rows, 2, {kDLFloat, 32, 1}, 0, 0, {0}},
};
static const mcc_port pair_out[] = {
    {"z", pair_rows, 2, {kDLFloat, 32, 1}, 0, 0, {0}},
    {"s", pair_rows, 1, {kDLFloat, 32, 1}, 0, 0, {0}},
};
static const mcc_symbol pair_sym[] = {{"N", 0, 4096, 1, {0, 0}}};
static const mcc_node pair_nodes[] = {
    {"", "", "", 0, 0, 1, 0},
    {"scale", "Mul", "", 0, 0, 1, 0},
    {"total", "ReduceSum", "", 0, 0, 1, 0},
};
static const mcc_api pair_api = {
    .abi = MCC_ABI,
    .n_in = 2,
    .n_out = 2,
    .n_sym = 1,
    .n_node = 3,
    .size = sizeof(mcc_api),
    .name = "pair",
    .compiler = "",
    .target = "",
    .features = "",
    .meta = "",
    .in = pair_in,
    .out = pair_out,
    .sym = pair_sym,
    .node = pair_nodes,
    .open = mcc_rt_open,
    .close = mcc_rt_close,
    .plan = mcc_rt_plan,
    .ctx_new = mcc_rt_ctx_new,
    .ctx_free = mcc_rt_ctx_free,
    .run = mcc_rt_run_api,
    .run_dlpack = mcc_rt_run_dlpack,
    .cancel = mcc_rt_cancel,
    .run_values = mcc_rt_run_values,
    .value_release = mcc_rt_value_release,
};
static const struct mcc_rt_variant pair_variants[] = {
    {"impossible", (uint64_t)1 << 63, pair_program, NULL},
    {"any", 0, pair_program, NULL},
};
static const struct mcc_rt_kernel pair_kernels[] = {{"scale", 1, 0, 0, 0}, {"total", 2, 0, 0, 0}};
#define PAIR_DESC                  \
    {                              \
        .api = &pair_api,          \
        .n_sym = 1,                \
        .n_out_dims = 3,           \
        .n_in_dims = 4,            \
        .n_variants = 2,           \
        .plan = pair_plan,         \
        .variants = pair_variants, \
        .scratch_bytes = 16,       \
        .kernels = pair_kernels,   \
        .n_kernels = 2,            \
    }
struct mcc_rt_desc pair_desc = PAIR_DESC;
/* What the runtime itself would open. */
const struct mcc_rt_desc mcc_rt_model = PAIR_DESC;

const mcc_api *mcc_query(uint32_t abi)
{
    return abi == MCC_ABI ? &pair_api : NULL;
}

/* ---- pick ------------------------------------------------------------------------------------------------------ */

/* args: v, names, list, hits (0), last, longer (0), sum, arena, weights, M */
static void pick_program(const int64_t *args, int64_t begin, int64_t end, char *scratch, struct mcc_rt_run *run)
{
    const float *v = POINTER(const float, args[0]);
    const struct rt_string *names = POINTER(const struct rt_string, args[1]);
    struct rt_string *last = POINTER(struct rt_string, args[4]);
    struct mcc_rt_value *list = POINTER(struct mcc_rt_value, args[2]);
    int64_t m = args[9], count = mcc_rt_nonzero_count(run, RT_ELEM_F32, v, m);
    (void)begin, (void)end, (void)scratch;
    int64_t hits = mcc_rt_segment(run, count * 8);
    if (hits < 0)
        return;
    mcc_rt_nonzero(run, RT_ELEM_F32, v, 1, &m, POINTER(int64_t, hits), count);
    if (mcc_rt_output(run, 0, 1, &count, POINTER(void, hits)) < 0)
        return;
    last[0] = names[1];
    last[1] = names[0];
    int64_t item = mcc_rt_tensor(run, RT_ELEM_F32, 1, &m, v);
    if (item < 0)
        return;
    int64_t longer = mcc_rt_seq_insert(run, 1, list, POINTER(struct mcc_rt_value, item), 0);
    if (longer < 0 || mcc_rt_output_value(run, 2, POINTER(struct mcc_rt_value, longer)) < 0)
        return;
    *POINTER(float, args[6]) = (float)mcc_rt_seq_length(run, POINTER(struct mcc_rt_value, longer));
}

/* dims: M, 2; out: M, arena, hits -1, last 2 */
static void pick_plan(const int64_t *args, int64_t begin, int64_t end, char *scratch, struct mcc_rt_run *run)
{
    const int64_t *dims = POINTER(const int64_t, args[0]);
    (void)begin, (void)end, (void)scratch, (void)run;
    int64_t made[] = {dims[0], 0, -1, 2};
    memcpy(POINTER(int64_t, args[1]), made, sizeof made);
}

static const mcc_dim pick_m[] = {{-1, 0, 0, NULL}}, pick_two[] = {{2, 0, 0, NULL}};
static const mcc_dim pick_unknown[] = {{-1, -1, 0, NULL}};
static const mcc_port pick_in[] = {
    {"v", pick_m, 1, {kDLFloat, 32, 1}, 0, 0, {0}},
    {"names", pick_two, 1, {kDLOpaqueHandle, 128, 1}, MCC_PORT_STRING, 0, {0}},
    {"list", NULL, -1, {kDLFloat, 32, 1}, MCC_PORT_SEQUENCE, 0, {0}},
};
static const mcc_port pick_out[] = {
    {"hits", pick_unknown, 1, {kDLInt, 64, 1}, MCC_PORT_DYNAMIC, 0, {0}},
    {"last", pick_two, 1, {kDLOpaqueHandle, 128, 1}, MCC_PORT_STRING, 0, {0}},
    {"longer", NULL, -1, {kDLFloat, 32, 1}, MCC_PORT_SEQUENCE, 0, {0}},
    {"sum", NULL, 0, {kDLFloat, 32, 1}, 0, 0, {0}},
};
static const mcc_symbol pick_sym[] = {{"M", 1, 0, 0, {0, 0}}};
static const mcc_api pick_api = {
    .abi = MCC_ABI,
    .n_in = 3,
    .n_out = 4,
    .n_sym = 1,
    .n_node = 3,
    .size = sizeof(mcc_api),
    .name = "pick",
    .in = pick_in,
    .out = pick_out,
    .sym = pick_sym,
    .node = pair_nodes,
};
static const struct mcc_rt_variant pick_variants[] = {{"any", 0, pick_program, NULL}};
struct mcc_rt_desc pick_desc = {
    .api = &pick_api,
    .n_sym = 1,
    .n_out_dims = 2,
    .n_in_dims = 2,
    .n_variants = 1,
    .plan = pick_plan,
    .variants = pick_variants,
};

/* ---- loose ----------------------------------------------------------------------------------------------------- */

/* args: a (a value), hits (0), b (0), arena, weights */
static void loose_program(const int64_t *args, int64_t begin, int64_t end, char *scratch, struct mcc_rt_run *run)
{
    struct mcc_rt_value *a = POINTER(struct mcc_rt_value, args[0]);
    int64_t count = mcc_rt_nonzero_count(run, RT_ELEM_F32, a->data, a->n), dims[2] = {a->rank, count};
    (void)begin, (void)end, (void)scratch;
    int64_t hits = mcc_rt_segment(run, a->rank * count * 8);
    if (hits < 0)
        return;
    mcc_rt_nonzero(run, RT_ELEM_F32, a->data, a->rank, a->dims, POINTER(int64_t, hits), count);
    if (mcc_rt_output(run, 0, 2, dims, POINTER(void, hits)) == 0)
        mcc_rt_output_value(run, 1, a);
}

static void loose_plan(const int64_t *args, int64_t begin, int64_t end, char *scratch, struct mcc_rt_run *run)
{
    (void)begin, (void)end, (void)scratch, (void)run;
    memcpy(POINTER(int64_t, args[1]), ((int64_t[]){0, -1, -1}), 24);
}

static const mcc_dim loose_dims[] = {{-1, -1, 0, NULL}, {-1, -1, 0, NULL}};
static const mcc_port loose_in[] = {{"a", NULL, -1, {kDLFloat, 32, 1}, 0, 0, {0}}};
static const mcc_port loose_out[] = {
    {"hits", loose_dims, 2, {kDLInt, 64, 1}, MCC_PORT_DYNAMIC, 0, {0}},
    {"b", NULL, -1, {kDLFloat, 32, 1}, 0, 0, {0}},
};
static const mcc_api loose_api = {
    .abi = MCC_ABI,
    .n_in = 1,
    .n_out = 2,
    .size = sizeof(mcc_api),
    .name = "loose",
    .in = loose_in,
    .out = loose_out,
};
static const struct mcc_rt_variant loose_variants[] = {{"any", 0, loose_program, NULL}};
struct mcc_rt_desc loose_desc = {
    .api = &loose_api,
    .n_out_dims = 2,
    .n_variants = 1,
    .plan = loose_plan,
    .variants = loose_variants,
};

/* ---- a host that counts ---- */

static void *counted_alloc(void *user, size_t bytes, size_t align)
{
    struct counted *m = user;
    if (m->calls++ == m->fail_at)
        return NULL;
    m->bytes += (int64_t)bytes;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void counted_release(void *user, void *p, size_t bytes)
{
    ((struct counted *)user)->bytes -= (int64_t)bytes;
    free(p);
}

mcc_host counted_host(struct counted *m)
{
    return (mcc_host){
        .size = sizeof(mcc_host), .user = m, .threads = 1, .alloc = counted_alloc, .release = counted_release};
}
