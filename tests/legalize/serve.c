/* A request is a line "MODEL<tab>N" and N values; the answer a line "STATUS<tab>TEXT" and, when STATUS is "ok", a
 * line with the number of values, and those. STATUS: "refused" (by import or legalize), "run" (the interpreter
 * failed), "ok". A value is a line of numbers and then its bytes:
 *
 *   T <ONNX data type> <rank> <dims...>     a tensor: its elements, one byte per sub-byte element; a string is
 *                                           a 4-byte length and its bytes
 *   S <n>                                   a sequence: n values
 *   O <0 or 1>                              an optional: so many values
 */
#include "tests/legalize/serve.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tests/interp/interp.h"

static bool value_read(FILE *in, struct arena *arena, struct tensor *t);

static bool items_read(FILE *in, struct arena *arena, struct tensor *t, unsigned n)
{
    t->n = n;
    t->item = NEW_ARRAY(arena, struct tensor, n + 1);
    for (unsigned i = 0; i < n; i++)
        if (!value_read(in, arena, &t->item[i]))
            return false;
    return true;
}

static bool strings_read(FILE *in, struct arena *arena, struct span *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t len;
        if (fread(&len, sizeof len, 1, in) != 1)
            return false;
        char *text = arena_alloc(arena, len + 1);
        if (len && fread(text, 1, len, in) != len)
            return false;
        s[i] = (struct span){text, len};
    }
    return true;
}

static bool value_read(FILE *in, struct arena *arena, struct tensor *t)
{
    char kind;
    int type;
    unsigned n;
    if (fscanf(in, " %c", &kind) != 1)
        return false;
    *t = (struct tensor){.kind = TYPE_TENSOR, .present = true};
    if (kind != 'T') {
        if (fscanf(in, "%u%*c", &n) != 1)
            return false;
        t->kind = kind == 'S' ? TYPE_SEQUENCE : TYPE_OPTIONAL;
        t->present = kind == 'S' || n;
        return items_read(in, arena, t, n);
    }
    if (fscanf(in, "%d %d", &type, &t->rank) != 2 || t->rank < 0 || t->rank > RANK_MAX)
        return false;
    t->elem = elem_by_onnx(type);
    t->dims = NEW_ARRAY(arena, int64_t, t->rank + 1);
    int64_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) {
        long long d;
        if (fscanf(in, "%lld", &d) != 1)
            return false;
        t->dims[i] = d;
        count *= d;
    }
    if (fgetc(in) != '\n')
        return false;
    size_t size = (size_t)count * elem_size(t->elem);
    t->data = arena_alloc(arena, size + 1);
    if (t->elem == ELEM_STR)
        return strings_read(in, arena, t->data, count);
    return size == 0 || fread(t->data, 1, size, in) == size;
}

static void value_write(FILE *out, const struct tensor *t)
{
    if (t->kind != TYPE_TENSOR) {
        unsigned n = t->kind == TYPE_OPTIONAL && !t->present ? 0 : t->n;
        fprintf(out, "%c %u\n", t->kind == TYPE_SEQUENCE ? 'S' : 'O', n);
        for (unsigned i = 0; i < n; i++)
            value_write(out, &t->item[i]);
        return;
    }
    int64_t count = 1;
    fprintf(out, "T %d %d", (int)elem_onnx(t->elem), (int)t->rank);
    for (int32_t i = 0; i < t->rank; i++) {
        fprintf(out, " %lld", (long long)t->dims[i]);
        count *= t->dims[i];
    }
    fputc('\n', out);
    if (t->elem != ELEM_STR) {
        fwrite(t->data, 1, (size_t)count * elem_size(t->elem), out);
        return;
    }
    const struct span *s = t->data;
    for (int64_t i = 0; i < count; i++) {
        uint32_t len = (uint32_t)s[i].size;
        fwrite(&len, sizeof len, 1, out);
        fwrite(s[i].data, 1, len, out);
    }
}

static void refused(FILE *out, const struct context *ctx)
{
    struct arena arena;
    arena_init(&arena, (struct context *)(uintptr_t)ctx);
    struct strbuf text = strbuf_of(&arena);
    for (uint32_t i = 0; i < ctx->diags.n; i++)
        if (ctx->diags.data[i].severity == SEV_ERROR) {
            diag_render(ctx, &ctx->diags.data[i], &text);
            strbuf_printf(&text, " | ");
        }
    fprintf(out, "refused\t%s\n", text.data ? text.data : "no reason given");
    arena_release(&arena);
}

static void answer(FILE *out, struct context *ctx, const char *model, const struct tensor *in, uint32_t n)
{
    struct file_list files = {0};
    const char *text = "";
    struct graph *imported = onnx_import(ctx, model, NULL, &files);
    struct graph *g = imported ? legalize(ctx, imported, NULL) : NULL;
    if (!g || ctx->n_errors) {
        refused(out, ctx);
        return;
    }
    if (g->inputs.n != n) {
        fprintf(out, "run\t%u inputs for a model with %u\n", n, g->inputs.n);
        return;
    }
    if (getenv("MCC_SERVE_PRINT")) {
        struct strbuf dump = strbuf_of(&ctx->session);
        graph_print(g, &dump, false);
        fprintf(stderr, "%s\n", dump.data);
    }
    struct tensor *results = NEW_ARRAY(&ctx->session, struct tensor, g->outputs.n + 1);
    enum eval_status status = graph_eval(g, in, results, &ctx->session, &text);
    if (status != EVAL_OK) {
        fprintf(out, "run\t%d %s\n", (int)status, text ? text : "");
        return;
    }
    fprintf(out, "ok\t\n%u\n", g->outputs.n);
    for (uint32_t i = 0; i < g->outputs.n; i++)
        value_write(out, &results[i]);
}

static bool request(FILE *in, FILE *out)
{
    char model[4096];
    unsigned n;
    if (fscanf(in, " %4095[^\t]\t%u%*c", model, &n) != 2)
        return false;
    struct context *ctx = context_new();
    jmp_buf unwind;
    if (!ctx)
        return false;
    ctx->model_path = model;
    ctx->unwind = &unwind;
    struct tensor *values = NEW_ARRAY(&ctx->session, struct tensor, n + 1);
    bool fine = true;
    for (unsigned i = 0; i < n && fine; i++)
        fine = value_read(in, &ctx->session, &values[i]);
    if (fine) {
        if (setjmp(unwind) == 0)
            answer(out, ctx, model, values, n);
        else
            refused(out, ctx);
    }
    fflush(out);
    context_free(ctx);
    return fine;
}

int serve(FILE *in, FILE *out)
{
    while (request(in, out))
        continue;
    return 0;
}
