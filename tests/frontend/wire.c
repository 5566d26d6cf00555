/* See wire.h. */
#include "tests/frontend/wire.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- wire format ------------------------------------------------------------------------------------------------ */

void wire_free(struct wire *w)
{
    free(w->data);
    *w = (struct wire){0};
}

void wire_append(struct wire *w, const void *data, size_t n)
{
    if (w->n + n > w->cap) {
        w->cap = 2 * (w->n + n) + 64;
        w->data = realloc(w->data, w->cap);
        assert_non_null(w->data);
    }
    if (n)
        memcpy(w->data + w->n, data, n);
    w->n += n;
}

static void varint(struct wire *w, uint64_t v)
{
    do {
        uint8_t b = (uint8_t)((v & 0x7F) | (v > 0x7F ? 0x80 : 0));
        wire_append(w, &b, 1);
        v >>= 7;
    } while (v);
}

void wire_int(struct wire *w, uint32_t field, int64_t v)
{
    varint(w, field << 3);
    varint(w, (uint64_t)v);
}

void wire_f32(struct wire *w, uint32_t field, float v)
{
    varint(w, field << 3 | 5);
    wire_append(w, &v, 4);
}

void wire_data(struct wire *w, uint32_t field, const void *data, size_t n)
{
    varint(w, field << 3 | 2);
    varint(w, n);
    wire_append(w, data, n);
}

void wire_text(struct wire *w, uint32_t field, const char *text)
{
    wire_data(w, field, text, strlen(text));
}

void wire_message(struct wire *w, uint32_t field, struct wire *sub)
{
    wire_data(w, field, sub->data, sub->n);
    wire_free(sub);
}

/* ---- ONNX messages ----------------------------------------------------------------------------------------------- */

static struct wire attribute(const char *name, int type)
{
    struct wire a = {0};
    wire_text(&a, 1, name);
    wire_int(&a, 20, type);
    return a;
}

struct wire attribute_int(const char *name, int64_t v)
{
    struct wire a = attribute(name, 2);
    wire_int(&a, 3, v);
    return a;
}

struct wire attribute_graph(const char *name, struct wire graph)
{
    struct wire a = attribute(name, 5);
    wire_message(&a, 6, &graph);
    return a;
}

struct wire attribute_tensor(const char *name, struct wire tensor)
{
    struct wire a = attribute(name, 4);
    wire_message(&a, 5, &tensor);
    return a;
}

/* The next word of a list into out; NULL at the end. */
static const char *word(const char *p, char out[64])
{
    p += strspn(p, " ");
    size_t n = strcspn(p, " ");
    snprintf(out, 64, "%.*s", (int)n, p);
    return n ? p + n : NULL;
}

struct wire node(const char *op, const char *inputs, const char *outputs)
{
    struct wire n = {0};
    char name[64];
    for (const char *p = inputs; (p = word(p, name));)
        wire_text(&n, 1, strcmp(name, "_") == 0 ? "" : name);
    for (const char *p = outputs; (p = word(p, name));)
        wire_text(&n, 2, strcmp(name, "_") == 0 ? "" : name);
    wire_text(&n, 3, op);
    wire_text(&n, 4, op);
    return n;
}

struct wire value_info(const char *name, int32_t elem, const char *dims)
{
    struct wire v = {0}, type = {0}, tensor = {0}, shape = {0};
    char d[64];
    wire_int(&tensor, 1, elem);
    for (const char *p = dims; p && (p = word(p, d));) {
        struct wire dim = {0};
        if ((d[0] >= '0' && d[0] <= '9') || d[0] == '-')
            wire_int(&dim, 1, strtoll(d, NULL, 10));
        else if (strcmp(d, "?") != 0)
            wire_text(&dim, 2, d);
        wire_message(&shape, 1, &dim);
    }
    if (dims)
        wire_message(&tensor, 2, &shape);
    wire_message(&type, 1, &tensor);
    wire_text(&v, 1, name);
    wire_message(&v, 2, &type);
    return v;
}

struct wire tensor_raw(const char *name, int32_t elem, const char *dims, const void *data, size_t n)
{
    struct wire t = {0};
    char d[64];
    for (const char *p = dims; (p = word(p, d));)
        wire_int(&t, 1, strtoll(d, NULL, 10));
    wire_int(&t, 2, elem);
    if (data)
        wire_data(&t, 9, data, n);
    wire_text(&t, 8, name);
    return t;
}

struct wire tensor_floats(const char *name, const char *dims, const float *data, size_t n)
{
    return tensor_raw(name, 1, dims, data, n * sizeof *data);
}

void graph_node_add(struct wire *graph, struct wire n)
{
    wire_message(graph, 1, &n);
}

void graph_input(struct wire *graph, struct wire value)
{
    wire_message(graph, 11, &value);
}

void graph_output(struct wire *graph, struct wire value)
{
    wire_message(graph, 12, &value);
}

void graph_init(struct wire *graph, struct wire tensor)
{
    wire_message(graph, 5, &tensor);
}

void opset(struct wire *holder, uint32_t field, const char *domain, int64_t version)
{
    struct wire o = {0};
    wire_text(&o, 1, domain);
    wire_int(&o, 2, version);
    wire_message(holder, field, &o);
}

struct wire model(struct wire graph)
{
    struct wire m = {0};
    wire_int(&m, 1, 8);
    opset(&m, 8, "", 17);
    wire_message(&m, 7, &graph);
    return m;
}

struct wire model_add(void)
{
    static const float w[] = {1, 2, 3};
    struct wire g = {0};
    graph_node_add(&g, node("Add", "x w", "y"));
    graph_node_add(&g, node("Relu", "y", "z"));
    graph_init(&g, tensor_floats("w", "3", w, 3));
    graph_input(&g, value_info("x", 1, "2 3"));
    graph_output(&g, value_info("z", 1, "2 3"));
    return model(g);
}

/* ---- importing --------------------------------------------------------------------------------------------------- */

int fixture_open(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    snprintf(f->dir, sizeof f->dir, "/tmp/mcc-frontend-XXXXXX");
    if (!mkdtemp(f->dir))
        return -1;
    snprintf(f->path, sizeof f->path, "%s/model.onnx", f->dir);
    *state = f;
    return 0;
}

int fixture_close(void **state)
{
    struct fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    int status = system(command);
    context_free(f->ctx);
    free(f);
    return status;
}

void file_put(const struct fixture *f, const char *name, const void *data, size_t n)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    if (n)
        assert_int_equal(fwrite(data, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

struct graph *import_file(struct fixture *f, int64_t failing)
{
    jmp_buf unwind;
    struct graph *volatile g = NULL;
    context_free(f->ctx);
    f->ctx = context_new();
    assert_non_null(f->ctx);
    f->ctx->model_path = f->path;
    f->ctx->unwind = &unwind;
    f->ctx->fail_alloc = failing;
    f->files = (struct file_list){0};
    if (setjmp(unwind) == 0)
        g = onnx_import(f->ctx, f->path, &f->options, &f->files);
    f->ctx->unwind = NULL;
    assert_true(g || f->ctx->fail != FAIL_NONE);
    return g;
}

struct graph *import_bytes(struct fixture *f, const void *data, size_t n)
{
    file_put(f, "model.onnx", data, n);
    return import_file(f, 0);
}

struct graph *import(struct fixture *f, struct wire message)
{
    struct graph *g = import_bytes(f, message.data, message.n);
    wire_free(&message);
    return g;
}

const char *messages(struct fixture *f)
{
    struct strbuf b = strbuf_of(&f->ctx->session);
    strbuf_append(&b, "", 0);
    for (uint32_t i = 0; i < f->ctx->diags.n; i++) {
        diag_render(f->ctx, &f->ctx->diags.data[i], &b);
        strbuf_append(&b, "\n", 1);
    }
    return b.data;
}

void assert_refused(struct fixture *f, struct wire message, enum fail fail, const char *says)
{
    struct graph *g = import(f, message);
    const char *text = messages(f);
    if (g || !strstr(text, says) || f->ctx->fail != fail)
        fail_msg("%s with class %d, should say \"%s\" with class %d:\n%s", g ? "accepted" : "refused", f->ctx->fail,
                 says, fail, text);
}

struct graph *assert_imported(struct fixture *f, struct graph *g)
{
    if (!g)
        fail_msg("refused:\n%s", messages(f));
    return g;
}

const struct node *node_of(const struct graph *g, const char *op)
{
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *n = &g->nodes.data[i];
        if (strcmp(n->op == OP_IMPORTED ? n->op_type : op_name(n->op), op) == 0)
            return n;
    }
    return NULL;
}

const struct node *constant_of(const struct graph *g, const char *name)
{
    for (uint32_t i = 1; i < g->values.n; i++) {
        const struct value *v = &g->values.data[i];
        if (v->name && strcmp(v->name, name) == 0 && v->def.i && graph_node(g, v->def)->op == OP_CONSTANT)
            return graph_node(g, v->def);
    }
    return NULL;
}
