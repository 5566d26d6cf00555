/* Opening a .pt2 file for edits: its nodes, what they read and make, and what each of them does (struct editor).
 *
 * Edits put other values in front of readers, so it must not matter when a value is read. Operators that write to their
 * operand become pure ones where nobody reads that memory afterwards; the values of other written memory are not shown.
 * Batch norms behind convolutions are folded into these, as exporters to ONNX do.
 */
#include "frontend/pt2/edit.h"

#include <math.h>

/* ---- values ------------------------------------------------------------------------------------------------------ */

struct edit_value *edit_value(const struct edit_file *e, const char *name)
{
    const struct binding *b = name_lookup((struct names *)(uintptr_t)&e->values_by_name, name);
    return b ? &e->values.data[b->value.i] : NULL;
}

const struct json *edit_meta(const struct edit_file *e, const char *name)
{
    const struct binding *b = name_lookup((struct names *)(uintptr_t)&e->p.metas, name);
    return b ? e->p.meta_list.data[b->value.i] : NULL;
}

static uint32_t rank_of(const struct edit_file *e, const char *name)
{
    const struct json *sizes = json_get(edit_meta(e, name), "sizes");
    return sizes ? sizes->n : UINT32_MAX;
}

const char *edit_name(struct edit_file *e, const char *like, const char *what)
{
    const char *first = arena_printf(&e->p.ctx->session, "%s_%s", like, what), *name = first;
    for (uint32_t k = 2; edit_value(e, name) || name_lookup(&e->new_names, name) || name_lookup(&e->p.weights, name) ||
                         name_lookup(&e->p.constants, name);
         k++)
        name = arena_printf(&e->p.ctx->session, "%s_%u", first, k);
    name_bind(&e->new_names, name, (value_id){1}, 0);
    return name;
}

static void value_made(struct edit_file *e, const char *name, uint32_t maker)
{
    struct edit_value v = {.name = name, .maker = maker};
    VEC_PUSH(&e->p.ctx->session, &e->values, v);
    name_bind(&e->values_by_name, name, (value_id){e->values.n - 1}, 0);
}

static uint32_t storage_new(struct edit_file *e, bool kept)
{
    VEC_PUSH(&e->p.ctx->session, &e->storages, (struct edit_storage){.kept = kept});
    return e->storages.n - 1;
}

static void value_read(struct edit_file *e, const char *name, uint32_t node)
{
    struct edit_value *v = edit_value(e, name);
    if (v) {
        v->reads++;
        v->last = node;
    }
}

static bool is_nonpersistent(const struct json *spec)
{
    const struct json *u = json_only(spec), *persistent = json_get(u, "persistent");
    return (u && strcmp(u->key, "tensor_constant") == 0) || (json_is(persistent, JSON_BOOL) && !persistent->u.truth);
}

static void inputs_read(struct edit_file *e)
{
    for (const struct json *s = pt2_specs(&e->p, "input_specs"); s; s = s->next) {
        const char *name = pt2_spec_value(s), *owner = pt2_spec_owner(s);
        if (!name)
            continue;
        value_made(e, name, 0);
        struct edit_value *v = &e->values.data[e->values.n - 1];
        v->owner = owner;
        v->constant = is_nonpersistent(s);
        v->storage = storage_new(e, true);
    }
}

static bool input_refuse(struct edit_file *e, const char *name)
{
    return pt2_refuse(&e->p, "the program writes to its input '%s'; write to a clone() of it and export again", name);
}

/* Outputs of the program are read after all nodes. */
static bool outputs_read(struct edit_file *e)
{
    for (const struct json *s = pt2_specs(&e->p, "output_specs"); s; s = s->next) {
        if (pt2_spec_value(s))
            value_read(e, pt2_spec_value(s), UINT32_MAX);
        for (uint32_t i = 1; state_is_listed(s) && pt2_spec_owner(s) && i < e->values.n; i++) {
            struct edit_value *v = &e->values.data[i];
            if (v->maker || strcmp(v->owner ? v->owner : v->name, pt2_spec_owner(s)) != 0)
                continue;
            if (!v->owner)
                return input_refuse(e, v->name);
            e->storages.data[v->storage].written = true;
        }
    }
    return true;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* The tensors that an argument names, in order. */
static void slots_read(struct edit_file *e, struct edit_file_node *n, const char *arg, struct json *j)
{
    if (j->key && (strcmp(j->key, "as_graph") == 0 || strcmp(j->key, "as_custom_obj") == 0))
        return;
    if (json_as_text(j) && j->key && strcmp(j->key, "name") == 0)
        VEC_PUSH(&e->p.ctx->session, &n->slots, ((struct edit_slot){.arg = arg, .text = j}));
    if (json_is(j, JSON_LIST) || json_is(j, JSON_OBJECT))
        for (struct json *c = json_first(j); c; c = c->next)
            slots_read(e, n, arg, c);
}

static bool node_read(struct edit_file *e, const struct json *json)
{
    struct edit_file_node n = {.json = json, .before = e->nodes.n};
    if (!pt2_target(&e->p, json, &n.domain, &n.op))
        return false;
    n.results = node_result_names(&e->p, json, (src_id){0}, &n.n_results);
    if (!n.results)
        return false;
    for (const struct json *i = json_first(json_get(json, "inputs")); i; i = i->next)
        if (json_get(i, "arg"))
            slots_read(e, &n, json_as_text(json_get(i, "name")), json_get(i, "arg"));
    for (uint32_t k = 0; k < n.slots.n; k++)
        value_read(e, json_as_text(n.slots.data[k].text), e->nodes.n);
    for (uint32_t k = 0; k < n.n_results; k++)
        if (n.results[k])
            value_made(e, n.results[k], e->nodes.n + 1);
    VEC_PUSH(&e->p.ctx->session, &e->nodes, n);
    return true;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool has_graph(const struct edit_file_node *n)
{
    return strcmp(n->domain, "higher_order") == 0;
}

/* Operators that have a pure form with the same result, where all operands are f32. */
static bool has_pure_form(const struct edit_file *e, const struct edit_file_node *n)
{
    static const char ops[] =
        " add_ sub_ mul_ div_ relu_ relu6_ hardtanh_ clamp_ leaky_relu_ elu_ hardswish_ hardsigmoid_ "
        "silu_ sigmoid_ tanh_ dropout_ ";
    bool floats = strstr(ops, arena_printf(&e->p.ctx->session, " %.*s ", (int)strcspn(n->op, "."), n->op)) != NULL;
    for (uint32_t k = 0; k < n->slots.n; k++) {
        int64_t code = 0;
        json_as_int(json_get(edit_meta(e, json_as_text(n->slots.data[k].text)), "dtype"), &code);
        floats &= elem_by_torch(code) == ELEM_F32;
    }
    return floats;
}

/* What the node's results and the memory of its first operand have to do with each other. */
static bool node_memory(struct edit_file *e, uint32_t i)
{
    struct edit_file_node *n = &e->nodes.data[i];
    const struct schema *schema = torch_schema(n->domain, n->op);
    const char *pure = schema ? NULL : pt2_pure(&e->p, n->op);
    const struct edit_value *first = n->slots.n ? edit_value(e, json_as_text(n->slots.data[0].text)) : NULL;
    const uint32_t storage = first ? first->storage : 0;
    bool alias = schema && torch_schema_alias(schema) != ALIAS_NONE;
    for (uint32_t k = 0; has_graph(n) && k < n->slots.n; k++) { /* as its graph may do */
        const struct edit_value *v = edit_value(e, json_as_text(n->slots.data[k].text));
        e->storages.data[v ? v->storage : 0].written = true;
    }
    if (pure && torch_schema(n->domain, pure) && first) {
        struct edit_storage *s = &e->storages.data[storage];
        n->pure = !s->kept && !s->written && s->last <= i && has_pure_form(e, n);
        n->op = n->pure ? pure : n->op;
        alias = !n->pure;
        s->written |= alias;
        if (alias && s->kept && !first->owner)
            return input_refuse(e, first->name);
    }
    for (uint32_t k = 0; k < n->n_results; k++) {
        struct edit_value *v = n->results[k] ? edit_value(e, n->results[k]) : NULL;
        if (!v)
            continue;
        v->storage = alias && first ? storage : storage_new(e, false);
        struct edit_storage *s = &e->storages.data[v->storage];
        s->last = s->last > v->last ? s->last : v->last;
        s->written |= has_graph(n);
    }
    return true;
}

static bool is_written(const struct edit_file *e, const char *name)
{
    const struct edit_value *v = edit_value(e, name);
    return v && e->storages.data[v->storage].written;
}

bool edit_is_open(const struct edit_file *e, const char *name)
{
    const struct edit_value *v = edit_value(e, name);
    return v && (v->last == UINT32_MAX || e->storages.data[v->storage].written);
}

/* ---- what nodes do ----------------------------------------------------------------------------------------------- */

/* Operators by the part of the name before the dot; of a product the arguments that are its operands. */
static const struct op_kind {
    const char *op;
    enum edit_kind kind;
    const char *args[3];
    struct edit_product product;
} op_kinds[] = {
#define CONV(op)                                       \
    {                                                  \
        op, EDIT_PRODUCT, {"input", "weight", "bias"}, \
        {                                              \
            0, 1, 1, false, true                       \
        }                                              \
    }
#define TRANSPOSED(op)                                 \
    {                                                  \
        op, EDIT_PRODUCT, {"input", "weight", "bias"}, \
        {                                              \
            1, 0, 1, false, true                       \
        }                                              \
    }
    CONV("conv1d"),
    CONV("conv2d"),
    CONV("conv3d"),
    CONV("convolution"),
    TRANSPOSED("conv_transpose1d"),
    TRANSPOSED("conv_transpose2d"),
    TRANSPOSED("conv_transpose3d"),
    {"linear", EDIT_PRODUCT, {"input", "weight", "bias"}, {0, 1, 1, true, true}},
    {"addmm", EDIT_PRODUCT, {"mat1", "mat2", "self"}, {1, 0, 1, true, true}},
    {"mm", EDIT_PRODUCT, {"self", "mat2"}, {1, 0, 1, true, false}},
    {"matmul", EDIT_PRODUCT, {"self", "other"}, {1, 0, 1, true, false}},
    {"add.Tensor", EDIT_SUM, {0}, {0}},
    {"cat", EDIT_CONCAT, {0}, {0}},
    {"max_pool1d", EDIT_MAX_POOL, {0}, {0}},
    {"max_pool2d", EDIT_MAX_POOL, {0}, {0}},
    {"max_pool3d", EDIT_MAX_POOL, {0}, {0}},
    {"max_pool2d_with_indices", EDIT_MAX_POOL, {0}, {0}},
    {"max_pool3d_with_indices", EDIT_MAX_POOL, {0}, {0}},
    {"avg_pool1d", EDIT_AVERAGE_POOL, {0}, {0}},
    {"avg_pool2d", EDIT_AVERAGE_POOL, {0}, {0}},
    {"avg_pool3d", EDIT_AVERAGE_POOL, {0}, {0}},
    {"adaptive_avg_pool1d", EDIT_GLOBAL_POOL, {0}, {0}},
    {"adaptive_avg_pool2d", EDIT_GLOBAL_POOL, {0}, {0}},
    {"adaptive_avg_pool3d", EDIT_GLOBAL_POOL, {0}, {0}},
    {"upsample_nearest1d", EDIT_RESIZE, {0}, {0}},
    {"upsample_nearest2d", EDIT_RESIZE, {0}, {0}},
    {"upsample_nearest3d", EDIT_RESIZE, {0}, {0}},
    {"upsample_linear1d", EDIT_RESIZE, {0}, {0}},
    {"upsample_bilinear2d", EDIT_RESIZE, {0}, {0}},
    {"upsample_trilinear3d", EDIT_RESIZE, {0}, {0}},
    {"upsample_bicubic2d", EDIT_RESIZE, {0}, {0}},
    {"relu", EDIT_RELU, {0}, {0}},
    {"leaky_relu", EDIT_LEAKY_RELU, {0}, {0}},
    {"relu6", EDIT_CLIP, {0}, {0}},
    {"hardtanh", EDIT_CLIP, {0}, {0}},
    {"clamp.default", EDIT_CLIP, {0}, {0}},
};

static double arg_number(const struct edit_file_node *n, const char *arg, double absent)
{
    const struct json *u = json_only(node_arg(n->json, arg));
    double x = json_is(u, JSON_BOOL) ? u->u.truth : absent;
    json_as_number(u, &x);
    return x;
}

static struct edit_slot *slot_of(const struct edit_file_node *n, const char *arg)
{
    for (uint32_t k = 0; arg && k < n->slots.n; k++)
        if (n->slots.data[k].arg && strcmp(n->slots.data[k].arg, arg) == 0)
            return &n->slots.data[k];
    return NULL;
}

static struct json *json_new(struct edit_file *e, enum json_kind kind, const char *key)
{
    struct json *j = NEW(&e->p.scratch, struct json);
    *j = (struct json){.kind = kind, .key = key, .n = 1};
    return j;
}

/* The bias of a product that has none, to be filled in. */
static struct edit_slot bias_slot(struct edit_file *e, const struct edit_file_node *n)
{
    struct json *arg = (struct json *)(uintptr_t)node_arg(n->json, "bias"), *inputs = json_get(n->json, "inputs");
    struct edit_slot s = {.arg = "bias", .text = json_new(e, JSON_TEXT, "name")};
    s.text->u.text = "";
    s.present = json_new(e, JSON_OBJECT, "as_tensor");
    s.present->u.first = s.text;
    s.absent = json_new(e, JSON_BOOL, "as_none");
    s.absent->u.truth = true;
    if (!arg) {
        struct json *input = json_new(e, JSON_OBJECT, NULL), *name = json_new(e, JSON_TEXT, "name"),
                    *kind = json_new(e, JSON_INT, "kind"), **last = &inputs->u.first;
        arg = json_new(e, JSON_OBJECT, "arg");
        name->u.text = "bias";
        kind->u.i = 2; /* by its name */
        input->n = 3;
        input->u.first = name;
        name->next = arg;
        arg->next = kind;
        while (*last)
            last = &(*last)->next;
        *last = input;
        inputs->n++;
    }
    arg->u.first = s.absent;
    s.optional = arg;
    return s;
}

/* A matrix that is the transpose of a parameter: the parameter is the operand, at the place where it is transposed. */
static void see_through(struct edit_file *e, struct edit_file_node *n)
{
    const struct edit_value *w = edit_value(e, json_as_text(n->slots.data[1].text));
    struct edit_file_node *t = w && w->maker ? &e->nodes.data[w->maker - 1] : NULL;
    const char *name = t && t->slots.n == 1 ? json_as_text(t->slots.data[0].text) : NULL;
    int64_t first = 1;
    if (!name || !edit_value(e, name) || edit_value(e, name)->maker || rank_of(e, name) != 2 || w->reads != 1 ||
        edit_is_open(e, w->name))
        return;
    const struct json *dims = json_first(json_only(node_arg(t->json, "dims")));
    if (strcmp(t->op, "permute.default") == 0 ? !json_as_int(dims, &first)
                                              : strcmp(t->op, "t.default") != 0 && strcmp(t->op, "transpose.int") != 0)
        return;
    if (strcmp(t->op, "transpose.int") == 0 && fmod(arg_number(t, "dim0", 0) + arg_number(t, "dim1", 0) + 4, 2) != 1)
        first = 0;
    n->slots.data[1] = t->slots.data[0];
    n->before = w->maker - 1;
    t->slots.n = 0;
    if (first == 1 || first == -1) {
        n->shown.product.out_axis ^= 1;
        n->shown.product.in_axis ^= 1;
    }
}

/* The operands of a product in their order. False: it has others, or is none in this form. */
static bool product_read(struct edit_file *e, struct edit_file_node *n, const struct op_kind *kind)
{
    struct edit_slot *slots[3] = {slot_of(n, kind->args[0]), slot_of(n, kind->args[1]), slot_of(n, kind->args[2])};
    const struct json *absent = node_arg(n->json, "bias");
    uint32_t found = 2 + (slots[2] != NULL);
    if (absent && !slots[2] && !json_get(absent, "as_none"))
        return false;
    if (!slots[0] || !slots[1] || n->slots.n != found || n->n_results != 1)
        return false;
    const struct edit_slot in[2] = {*slots[0], *slots[1]};
    const struct edit_slot bias = slots[2]                   ? *slots[2]
                                  : kind->product.takes_bias ? bias_slot(e, n)
                                                             : (struct edit_slot){0};
    n->shown.product = kind->product;
    n->slots.n = 0;
    for (int k = 0; k < 2; k++)
        VEC_PUSH(&e->p.ctx->session, &n->slots, in[k]);
    if (kind->product.takes_bias)
        VEC_PUSH(&e->p.ctx->session, &n->slots, bias);
    if (kind->product.matrix) {
        see_through(e, n);
        return arg_number(n, "alpha", 1) == 1 && arg_number(n, "beta", 1) == 1;
    }
    n->shown.product.groups = arg_number(n, "groups", 1);
    if (arg_number(n, "transposed", 0) != 0) {
        n->shown.product.out_axis = 1;
        n->shown.product.in_axis = 0;
    }
    const uint32_t rank = rank_of(e, json_as_text(in[0].text)); /* an image alone, without a batch, has less */
    return rank != UINT32_MAX && rank == rank_of(e, json_as_text(in[1].text));
}

static void kind_read(struct edit_file *e, struct edit_file_node *n)
{
    for (size_t k = 0; k < COUNT_OF(op_kinds) && strcmp(n->domain, "aten") == 0; k++) {
        const struct op_kind *kind = &op_kinds[k];
        size_t size = strlen(kind->op);
        bool whole = strchr(kind->op, '.') != NULL;
        if (strncmp(n->op, kind->op, size) == 0 && n->op[size] == (whole ? '\0' : '.')) {
            bool fits = kind->kind == EDIT_PRODUCT ? product_read(e, n, kind)
                        : kind->kind == EDIT_SUM   ? n->slots.n == 2
                                                   : true;
            n->shown.kind = fits ? kind->kind : EDIT_OTHER;
        }
    }
}

static void show(struct edit_file *e, struct edit_file_node *n)
{
    struct arena *arena = &e->p.ctx->session;
    const char **in = NEW_ARRAY(arena, const char *, n->slots.n + 1),
               **out = NEW_ARRAY(arena, const char *, n->n_results);
    n->in = NEW_ARRAY(arena, const char *, n->slots.n + 1);
    for (uint32_t k = 0; k < n->slots.n; k++) {
        const char *name = json_as_text(n->slots.data[k].text);
        in[k] = is_written(e, name) ? "" : arena_strdup(arena, name);
    }
    n->shown.n_out = 0;
    for (uint32_t k = 0; k < n->n_results; k++) {
        out[k] = n->results[k] ? n->results[k] : "";
        if (k == 0 || (n->results[k] && edit_value(e, out[k])->reads))
            n->shown.n_out = k + 1; /* results that nobody reads at the end do not count */
    }
    n->shown.op = arena_strndup(arena, n->op, strcspn(n->op, "."));
    n->shown.name = "";
    n->shown.in = in;
    n->shown.out = out;
    n->shown.n_in = n->slots.n;
}

/* ---- constants --------------------------------------------------------------------------------------------------- */

bool edit_constant(struct edit_file *e, const char *name, struct tensor_data *out)
{
    const struct edit_value *v = edit_value(e, name);
    for (uint32_t i = e->folded.n; i-- > 0;)
        if (strcmp(e->folded.data[i].name, name) == 0) {
            *out = e->folded.data[i].data;
            return true;
        }
    if (!v || !v->owner || v->maker || is_written(e, name))
        return false;
    const struct json *meta = edit_meta(e, name);
    struct diag_mark mark = diag_mark(e->p.ctx);
    int64_t code;
    if (!json_as_int(json_get(meta, "dtype"), &code) || elem_by_torch(code) != ELEM_F32 ||
        !name_lookup(v->constant ? &e->p.constants : &e->p.weights, v->owner))
        return false;
    bool ok = weight_bytes(&e->p, v->constant, v->owner, out) && out->elem == ELEM_F32;
    diag_drop(e->p.ctx, &mark); /* repeated elements: it stays as it is */
    return ok;
}

static const float *floats_of(struct edit_file *e, const char *name, int64_t n, struct tensor_data *t)
{
    return *name && edit_constant(e, name, t) && t->rank == 1 && t->dims[0] == n ? t->bytes.data : NULL;
}

static void fold_put(struct edit_file *e, const char *name, const struct tensor_data *like, const float *values)
{
    struct edit_constant c = {name, *like};
    c.data.bytes.data = values;
    VEC_PUSH(&e->p.ctx->session, &e->folded, c);
}

/* ---- batch norms ------------------------------------------------------------------------------------------------- */

/* What a batch norm multiplies each channel by and adds to it, where the file says so; n channels. */
static bool norm_factors(struct edit_file *e, const struct edit_file_node *n, int64_t channels, float *by, float *plus)
{
    static const char *const args[] = {"running_mean", "running_var", "weight", "bias"};
    const float *x[COUNT_OF(args)] = {NULL};
    struct tensor_data t;
    for (size_t k = 0; k < COUNT_OF(args); k++) {
        const struct edit_slot *s = slot_of(n, args[k]);
        x[k] = s ? floats_of(e, json_as_text(s->text), channels, &t) : NULL;
        if (!x[k] && (s || k < 2))
            return false;
    }
    for (int64_t c = 0; c < channels; c++) {
        double scale = (x[2] ? (double)x[2][c] : 1) / sqrt((double)x[1][c] + arg_number(n, "eps", 0));
        by[c] = (float)scale;
        plus[c] = (float)((x[3] ? (double)x[3][c] : 0) - (double)x[0][c] * scale);
        if (!isfinite(by[c]) || !isfinite(plus[c]))
            return false;
    }
    return true;
}

static bool is_norm(const struct edit_file_node *n)
{
    return strcmp(n->domain, "aten") == 0 && slot_of(n, "input") && n->shown.n_out == 1 &&
           (strcmp(n->op, "_native_batch_norm_legit_no_training.default") == 0 ||
            (strcmp(n->op, "batch_norm.default") == 0 && arg_number(n, "training", 1) == 0));
}

/* The convolution that alone makes what the batch norm alone reads, with weights and a bias of its own. */
static struct edit_file_node *norm_product(struct edit_file *e, const struct edit_file_node *norm)
{
    const struct edit_value *x = edit_value(e, json_as_text(slot_of(norm, "input")->text));
    struct edit_file_node *n = x && x->maker ? &e->nodes.data[x->maker - 1] : NULL;
    if (!n || n->shown.kind != EDIT_PRODUCT || n->shown.product.matrix || x->reads != 1 || edit_is_open(e, x->name))
        return NULL;
    for (uint32_t k = 1; k < n->shown.n_in; k++) {
        const struct edit_value *v = *n->shown.in[k] ? edit_value(e, n->shown.in[k]) : NULL;
        if (v ? v->reads != 1 || edit_is_open(e, v->name) : k == 1)
            return NULL;
    }
    return n;
}

static void norm_fold(struct edit_file *e, struct edit_file_node *norm)
{
    struct arena *arena = &e->p.ctx->session;
    struct edit_file_node *n = norm_product(e, norm);
    struct json *made = n ? json_get(json_only(json_first(json_get(n->json, "outputs"))), "name") : NULL;
    struct tensor_data w, b;
    if (!made || !edit_constant(e, n->shown.in[1], &w) || w.rank < 3 || !w.bytes.size ||
        (n->shown.product.out_axis == 1 && n->shown.product.groups != 1))
        return;
    const int32_t axis = n->shown.product.out_axis;
    const int64_t channels = w.dims[axis];
    int64_t inner = 1, count = (int64_t)(w.bytes.size / sizeof(float));
    float *by = NEW_ARRAY(arena, float, channels), *plus = NEW_ARRAY(arena, float, channels);
    float *scaled = arena_copy(arena, w.bytes.data, w.bytes.size);
    const float *bias = *n->shown.in[2] ? floats_of(e, n->shown.in[2], channels, &b) : NULL;
    if ((*n->shown.in[2] && !bias) || !norm_factors(e, norm, channels, by, plus))
        return;
    for (int32_t d = axis + 1; d < w.rank; d++)
        inner *= w.dims[d];
    for (int64_t i = 0; i < count; i++)
        scaled[i] *= by[i / inner % channels];
    for (int64_t c = 0; bias && c < channels; c++)
        plus[c] += bias[c] * by[c];
    fold_put(e, n->shown.in[1], &w, scaled);
    const int64_t *dims = arena_copy(arena, &channels, sizeof channels);
    b = (struct tensor_data){
        .elem = ELEM_F32, .rank = 1, .dims = dims, .bytes = {plus, (size_t)channels * sizeof *plus}};
    const char *name = bias ? n->shown.in[2] : edit_name(e, n->shown.in[1], "bias");
    fold_put(e, name, &b, plus);
    ((const char **)(uintptr_t)n->shown.in)[2] = name;
    ((const char **)(uintptr_t)n->shown.out)[0] = norm->shown.out[0];
    edit_value(e, norm->shown.out[0])->maker = (uint32_t)(n - e->nodes.data) + 1;
    made->u.text = norm->shown.out[0];
    norm->gone = true;
    norm->shown.n_in = norm->shown.n_out = norm->slots.n = 0;
}

bool edit_read(struct edit_file *e)
{
    struct arena *arena = &e->p.ctx->session;
    names_init(&e->values_by_name, arena);
    names_init(&e->new_names, arena);
    VEC_PUSH(arena, &e->values, (struct edit_value){0});
    VEC_PUSH(arena, &e->storages, (struct edit_storage){0});
    inputs_read(e);
    for (const struct json *n = json_first(json_get(e->p.graph, "nodes")); n; n = n->next)
        if (!node_read(e, n))
            return false;
    if (!outputs_read(e))
        return false;
    for (uint32_t i = 1; i < e->values.n; i++) {
        struct edit_value *v = &e->values.data[i];
        if (!v->maker)
            e->storages.data[v->storage].last = v->last;
    }
    for (uint32_t i = 0; i < e->nodes.n; i++)
        if (!node_memory(e, i))
            return false;
    for (uint32_t i = 0; i < e->nodes.n; i++)
        kind_read(e, &e->nodes.data[i]);
    for (uint32_t i = 0; i < e->nodes.n; i++)
        show(e, &e->nodes.data[i]);
    for (uint32_t i = 0; i < e->nodes.n; i++)
        if (is_norm(&e->nodes.data[i]))
            norm_fold(e, &e->nodes.data[i]);
    return true;
}
