/* The artifact's table: mcc_api (runtime/mcc.h), mcc_rt_desc (runtime/rt.h) and all that they point to, written as a
 * relocatable object without LLVM.
 *
 * Every target is little-endian with 64-bit pointers and natural alignment, so the structures have the layout that
 * this compiler gives them: they are filled here, pointers left 0, and each pointer becomes a relocation. A kernel K
 * also gets the constant `K.index`, its row in the table of kernels, unless the rows of launches have that.
 */
#include "codegen/table.h"
#include "ir/base/file.h"

#include "codegen/sidecar.h"

#include "runtime/rt.h"

/* Where a pointer goes: offset of the structure plus that of its member. */
#define AT(base, type, member) ((base) + offsetof(type, member))

struct table {
    struct object o;
    const struct artifact *a;
};

static void point_to(struct table *t, uint64_t at, enum section section, uint64_t offset)
{
    object_pointer(&t->o, at, section, offset);
}

static void point_out(struct table *t, uint64_t at, const char *symbol)
{
    object_pointer(&t->o, at, object_undefined(&t->o, symbol), 0);
}

/* NULL stays NULL. */
static void point_text(struct table *t, uint64_t at, const char *text)
{
    if (text)
        point_to(t, at, SECTION_RODATA, object_put(&t->o, SECTION_RODATA, text, strlen(text) + 1, 1));
}

static uint64_t put_array(struct table *t, const void *data, size_t n, size_t size)
{
    return object_put(&t->o, SECTION_RELRO, data, n * size, 8);
}

static DLDataType dl_type(enum elem elem)
{
    static const DLDataType types[ELEM_COUNT] = {
#define ELEM(id, name, onnx, bits, bytes, code, class) [ELEM_##id] = {code, bits, 1},
#include "ir/ops/elem.def"
    };
    DLDataType type = types[elem];
    if (type.bits == 0)
        type.bits = 128;     /* strings: {pointer, size} */
    return type;
}

static uint64_t put_dims(struct table *t, const struct art_port *port)
{
    uint32_t n = port->rank > 0 ? (uint32_t)port->rank : 0;
    mcc_dim *dims = NEW_ARRAY(t->o.arena, mcc_dim, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        dims[i].extent = port->dims[i].extent;
        dims[i].symbol = port->dims[i].symbol;
        dims[i].room = port->dims[i].room;
    }
    uint64_t at = put_array(t, dims, n, sizeof *dims);
    for (uint32_t i = 0; i < n; i++)
        point_text(t, AT(at + i * sizeof *dims, mcc_dim, expr), port->dims[i].expr);
    return at;
}

static uint64_t put_ports(struct table *t, const struct art_port *ports, uint32_t n)
{
    mcc_port *rows = NEW_ARRAY(t->o.arena, mcc_port, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        rows[i].ndim = ports[i].rank;
        rows[i].dtype = dl_type(ports[i].elem);
        rows[i].flags = ports[i].flags;
        rows[i].alias = ports[i].alias;
    }
    uint64_t at = put_array(t, rows, n, sizeof *rows);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t row = at + i * sizeof *rows;
        point_text(t, AT(row, mcc_port, name), ports[i].name);
        point_to(t, AT(row, mcc_port, dims), SECTION_RELRO, put_dims(t, &ports[i]));
    }
    return at;
}

static uint64_t put_symbols(struct table *t)
{
    mcc_symbol *rows = NEW_ARRAY(t->o.arena, mcc_symbol, t->a->n_sym + 1);
    for (uint32_t i = 0; i < t->a->n_sym; i++)
        rows[i] = (mcc_symbol){.min = t->a->sym[i].min, .max = t->a->sym[i].max, .step = t->a->sym[i].step};
    uint64_t at = put_array(t, rows, t->a->n_sym, sizeof *rows);
    for (uint32_t i = 0; i < t->a->n_sym; i++)
        point_text(t, AT(at + i * sizeof *rows, mcc_symbol, name), t->a->sym[i].name);
    return at;
}

static uint64_t put_nodes(struct table *t)
{
    mcc_node *rows = NEW_ARRAY(t->o.arena, mcc_node, t->a->n_node + 1);
    for (uint32_t i = 0; i < t->a->n_node; i++) {
        rows[i].flops = t->a->node[i].flops;
        rows[i].bytes = t->a->node[i].bytes;
        rows[i].kernels = t->a->node[i].kernels;
        rows[i].next = t->a->node[i].next;
    }
    uint64_t at = put_array(t, rows, t->a->n_node, sizeof *rows);
    for (uint32_t i = 0; i < t->a->n_node; i++) {
        uint64_t row = at + i * sizeof *rows;
        const mcc_node *node = &t->a->node[i];
        point_text(t, AT(row, mcc_node, name), node->name ? node->name : "");
        point_text(t, AT(row, mcc_node, op), node->op ? node->op : "");
        point_text(t, AT(row, mcc_node, source), node->source ? node->source : "");
    }
    return at;
}

static uint64_t put_kernels(struct table *t)
{
    struct mcc_rt_kernel *rows = NEW_ARRAY(t->o.arena, struct mcc_rt_kernel, t->a->n_kernels + 1);
    for (uint32_t i = 0; i < t->a->n_kernels; i++) {
        const struct art_kernel *k = &t->a->kernels[i];
        rows[i] = (struct mcc_rt_kernel){
            .node = k->node, .arithmetic = k->arithmetic, .flops = k->flops, .bytes = k->bytes};
    }
    uint64_t at = put_array(t, rows, t->a->n_kernels, sizeof *rows);
    for (uint32_t i = 0; i < t->a->n_kernels; i++) {
        const char *name = t->a->kernels[i].name;
        point_text(t, AT(at + i * sizeof *rows, struct mcc_rt_kernel, name), name);
        if (t->a->n_rows) /* they have the numbers */
            continue;
        uint64_t index = object_put(&t->o, SECTION_RODATA, &i, sizeof i, sizeof i);
        object_define(&t->o, arena_printf(t->o.arena, "%s.index", name), SECTION_RODATA, index, sizeof i);
    }
    return at;
}

/* The kernels that a program of several variants launches in one of them. */
static uint64_t put_rows(struct table *t, const uint32_t *kernel)
{
    const struct artifact *a = t->a;
    struct mcc_rt_row *rows = NEW_ARRAY(t->o.arena, struct mcc_rt_row, a->n_rows);
    for (uint32_t i = 0; i < a->n_rows; i++)
        if (kernel[i] != ART_NO_KERNEL) {
            int64_t ns = a->kernels[kernel[i]].ns;
            rows[i] = (struct mcc_rt_row){.kernel = kernel[i], .ns = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns};
        }
    uint64_t at = put_array(t, rows, a->n_rows, sizeof *rows);
    for (uint32_t i = 0; i < a->n_rows; i++) {
        uint64_t row = at + i * sizeof *rows;
        if (kernel[i] == ART_NO_KERNEL)
            continue;
        const struct art_kernel *k = &a->kernels[kernel[i]];
        struct span data = a->units[k->unit].data;
        point_out(t, AT(row, struct mcc_rt_row, fn), k->name);
        if (data.size)
            point_to(t, AT(row, struct mcc_rt_row, data), SECTION_RODATA,
                     object_put(&t->o, SECTION_RODATA, data.data, data.size, sizeof(uint32_t)));
    }
    return at;
}

static uint64_t put_variants(struct table *t)
{
    struct mcc_rt_variant *rows = NEW_ARRAY(t->o.arena, struct mcc_rt_variant, t->a->n_variants + 1);
    for (uint32_t i = 0; i < t->a->n_variants; i++)
        rows[i].features = t->a->variants[i].features;
    uint64_t at = put_array(t, rows, t->a->n_variants, sizeof *rows);
    for (uint32_t i = 0; i < t->a->n_variants; i++) {
        uint64_t row = at + i * sizeof *rows;
        point_text(t, AT(row, struct mcc_rt_variant, name), t->a->variants[i].name);
        point_out(t, AT(row, struct mcc_rt_variant, program), t->a->variants[i].program);
        if (t->a->n_rows)
            point_to(t, AT(row, struct mcc_rt_variant, rows), SECTION_RELRO, put_rows(t, t->a->variants[i].rows));
    }
    return at;
}

/* Offsets of what the tables of an artifact with state have in common. */
struct ports {
    uint64_t in, out, sym, node;
};

static void point_functions(struct table *t, uint64_t at)
{
    static const struct {
        size_t at;
        const char *symbol, *stateful;
    } functions[] = {
        {offsetof(mcc_api, open), "mcc_rt_open", "mcc_rt_state_open"},
        {offsetof(mcc_api, close), "mcc_rt_close", "mcc_rt_close"},
        {offsetof(mcc_api, plan), "mcc_rt_plan", "mcc_rt_state_plan"},
        {offsetof(mcc_api, ctx_new), "mcc_rt_ctx_new", "mcc_rt_state_ctx_new"},
        {offsetof(mcc_api, ctx_free), "mcc_rt_ctx_free", "mcc_rt_state_ctx_free"},
        {offsetof(mcc_api, run), "mcc_rt_run_api", "mcc_rt_state_run"},
        {offsetof(mcc_api, run_dlpack), "mcc_rt_run_dlpack", "mcc_rt_state_run_dlpack"},
        {offsetof(mcc_api, cancel), "mcc_rt_cancel", "mcc_rt_state_cancel"},
        {offsetof(mcc_api, run_values), "mcc_rt_run_values", "mcc_rt_state_run_values"},
        {offsetof(mcc_api, value_release), "mcc_rt_value_release", "mcc_rt_state_value_release"},
    };
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        point_out(t, at + functions[i].at, t->a->n_state ? functions[i].stateful : functions[i].symbol);
    }
}

/* mcc_state stands after mcc_api, in artifacts that have it. */
enum { STATE_AT = (sizeof(mcc_api) + 15) / 16 * 16 };

static uint64_t put_api(struct table *t, struct ports *ports)
{
    const struct artifact *a = t->a;
    mcc_api api = {.abi = MCC_ABI,
                   .n_in = a->n_in - a->n_state,
                   .n_out = a->n_out - a->n_state,
                   .n_sym = a->n_sym,
                   .n_node = a->n_node,
                   .size = sizeof api,
                   .state = a->n_state ? STATE_AT : 0};
    uint64_t at = object_put(&t->o, SECTION_RELRO, &api, sizeof api, 16);
    mcc_state state = {.size = sizeof state, .n = a->n_state};
    if (a->n_state)
        object_put(&t->o, SECTION_RELRO, &state, sizeof state, 16);
    point_text(t, AT(at, mcc_api, name), a->name);
    point_text(t, AT(at, mcc_api, compiler), a->compiler);
    point_text(t, AT(at, mcc_api, target), a->target_text);
    point_text(t, AT(at, mcc_api, features), a->features);
    struct span meta = a->meta.size ? a->meta : (struct span){"", 1};
    point_to(t, AT(at, mcc_api, meta), SECTION_RODATA, object_put(&t->o, SECTION_RODATA, meta.data, meta.size, 1));
    ports->in = put_ports(t, a->in, a->n_in);
    point_to(t, AT(at, mcc_api, in), SECTION_RELRO, ports->in);
    ports->out = put_ports(t, a->out, a->n_out);
    point_to(t, AT(at, mcc_api, out), SECTION_RELRO, ports->out);
    ports->sym = put_symbols(t);
    point_to(t, AT(at, mcc_api, sym), SECTION_RELRO, ports->sym);
    ports->node = put_nodes(t);
    point_to(t, AT(at, mcc_api, node), SECTION_RELRO, ports->node);
    if (a->n_state) {
        point_to(t, AT(at + STATE_AT, mcc_state, port), SECTION_RELRO,
                 ports->in + (a->n_in - a->n_state) * sizeof(mcc_port));
        point_out(t, AT(at + STATE_AT, mcc_state, reset), "mcc_rt_state_reset");
        point_out(t, AT(at + STATE_AT, mcc_state, tensor), "mcc_rt_state_tensor");
    }
    point_functions(t, at);
    return at;
}

/* For the runtime: all ports, and no functions. */
static uint64_t put_inner_api(struct table *t, const struct ports *ports)
{
    const struct artifact *a = t->a;
    mcc_api api = {
        .abi = MCC_ABI, .n_in = a->n_in, .n_out = a->n_out, .n_sym = a->n_sym, .n_node = a->n_node, .size = sizeof api};
    uint64_t at = object_put(&t->o, SECTION_RELRO, &api, sizeof api, 16);
    point_to(t, AT(at, mcc_api, in), SECTION_RELRO, ports->in);
    point_to(t, AT(at, mcc_api, out), SECTION_RELRO, ports->out);
    point_to(t, AT(at, mcc_api, sym), SECTION_RELRO, ports->sym);
    point_to(t, AT(at, mcc_api, node), SECTION_RELRO, ports->node);
    return at;
}

static bool is_zero(struct span s)
{
    const uint8_t *bytes = s.data;
    for (size_t i = 0; i < s.size; i++)
        if (bytes[i])
            return false;
    return true;
}

/* The bytes that the whole repeats: of one element, or all. */
static uint64_t period_of(struct span s, enum elem elem)
{
    size_t size = (size_t)elem_size(elem);
    const char *bytes = s.data;
    return s.size > size && memcmp(bytes, bytes + size, s.size - size) == 0 ? size : s.size;
}

static uint64_t put_states(struct table *t)
{
    const struct artifact *a = t->a;
    struct mcc_rt_state *rows = NEW_ARRAY(t->o.arena, struct mcc_rt_state, a->n_state);
    const struct art_port *ports = a->in + a->n_in - a->n_state;
    for (uint32_t i = 0; i < a->n_state; i++) {
        rows[i].bytes = a->states[i].initial.size;
        rows[i].period = period_of(a->states[i].initial, ports[i].elem);
    }
    uint64_t at = put_array(t, rows, a->n_state, sizeof *rows);
    for (uint32_t i = 0; i < a->n_state; i++) {
        uint64_t row = at + i * sizeof *rows;
        struct span initial = a->states[i].initial;
        uint32_t rank = (uint32_t)ports[i].rank;
        point_to(t, AT(row, struct mcc_rt_state, dims), SECTION_RODATA,
                 object_put(&t->o, SECTION_RODATA, a->states[i].dims, rank * sizeof(int64_t), sizeof(int64_t)));
        if (!is_zero(initial))
            point_to(t, AT(row, struct mcc_rt_state, initial), SECTION_RODATA,
                     object_put(&t->o, SECTION_RODATA, initial.data, rows[i].period, 64));
    }
    return at;
}

static uint64_t put_port_flags(struct table *t)
{
    const struct artifact *a = t->a;
    uint64_t *flags = NEW_ARRAY(t->o.arena, uint64_t, a->n_in + a->n_out + 1);
    for (uint32_t i = 0; i < a->n_in; i++)
        flags[i] = a->in[i].flags;
    for (uint32_t i = 0; i < a->n_out; i++)
        flags[a->n_in + i] = a->out[i].flags;
    return object_put(&t->o, SECTION_RODATA, flags, (a->n_in + a->n_out) * sizeof *flags, sizeof *flags);
}

/* Offsets of the rows that descriptions point to, once they are written. */
struct rows {
    bool written;
    uint64_t variants, kernels, flags;
};

static void point_desc(struct table *t, uint64_t at, struct rows *rows, bool sidecar)
{
    const struct artifact *a = t->a;
    point_out(t, AT(at, struct mcc_rt_desc, plan), a->plan);
    rows->variants = rows->written ? rows->variants : put_variants(t);
    point_to(t, AT(at, struct mcc_rt_desc, variants), SECTION_RELRO, rows->variants);
    rows->kernels = rows->written ? rows->kernels : put_kernels(t);
    point_to(t, AT(at, struct mcc_rt_desc, kernels), SECTION_RELRO, rows->kernels);
    rows->flags = rows->written ? rows->flags : put_port_flags(t);
    point_to(t, AT(at, struct mcc_rt_desc, port_flags), SECTION_RODATA, rows->flags);
    rows->written = true;
    if (sidecar) {
        point_text(t, AT(at, struct mcc_rt_desc, weights_file), path_name(a->weights.sidecar));
    } else if (a->weights.size) {
        point_to(t, AT(at, struct mcc_rt_desc, weights), SECTION_WEIGHTS, 0);
    }
}

static void put_model(struct table *t)
{
    static const char placeholder[64];
    const struct artifact *a = t->a;
    struct mcc_rt_desc d = {.n_sym = a->n_sym,
                            .n_out_dims = a->n_out_dims,
                            .n_in_dims = a->n_in_dims,
                            .n_variants = a->n_variants,
                            .scratch_bytes = a->scratch_bytes,
                            .weights_size = a->weights.size,
                            .n_kernels = a->n_kernels};
    bool sidecar = a->weights.size && a->weights.sidecar;
    struct ports ports;
    if (sidecar)
        d.sidecar_head = sidecar_head_size(t->o.arena, &a->weights);
    struct mcc_rt_stateful both = {.outer = d, .inner = d, .n_state = a->n_state};
    size_t size = a->n_state ? sizeof both : sizeof d;
    uint64_t at = object_put(&t->o, SECTION_RELRO, &both, size, 16);
    uint64_t api = put_api(t, &ports);
    struct rows rows = {0};
    point_to(t, AT(at, struct mcc_rt_desc, api), SECTION_RELRO, api);
    point_desc(t, at, &rows, sidecar);
    if (a->n_state) {
        uint64_t inner = at + offsetof(struct mcc_rt_stateful, inner);
        point_to(t, AT(inner, struct mcc_rt_desc, api), SECTION_RELRO, put_inner_api(t, &ports));
        point_desc(t, inner, &rows, sidecar);
        point_to(t, AT(at, struct mcc_rt_stateful, states), SECTION_RELRO, put_states(t));
    }
    if (a->weights.size && !sidecar)
        object_put(&t->o, SECTION_WEIGHTS, placeholder, sizeof placeholder, 64);
    if (a->graph.size)
        object_put(&t->o, SECTION_GRAPH, a->graph.data, a->graph.size, 1);
    if (a->build.size)
        object_put(&t->o, SECTION_BUILD, a->build.data, a->build.size, 1);
    object_define(&t->o, TABLE_MODEL, SECTION_RELRO, at, sizeof d);
    if (a->n_state)
        object_define(&t->o, TABLE_STATEFUL, SECTION_RELRO, at, sizeof both);
}

struct object table_object(struct arena *arena, const struct artifact *a)
{
    struct table t = {.a = a};
    object_init(&t.o, arena);
    put_model(&t);
    return t.o;
}
