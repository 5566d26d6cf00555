/* mcc report: one HTML file that needs nothing else, from disk as well: the graph, the times of kernels and stages,
 * memory, what the file's bytes are. The page is cli/commands/report/, its data one JSON object in it. */
#include "cli/commands/command.h"
#include "cli/commands/report/report.h"
#include "cli/commands/temporary.h"

struct reporting {
    struct measure measure;
    struct options *options;
    const char *output;
    struct proof proof; /* of --prove */
};

/* ---- the page ---------------------------------------------------------------------------------------------------- */

/* In a script element a '<' could end the element. JSON has it in texts only, where an escape means the same. */
static void put_data(const struct strbuf *data, struct strbuf *out)
{
    const char *p = data->data, *end = p + data->n;
    while (p < end) {
        const char *less = memchr(p, '<', (size_t)(end - p)), *stop = less ? less : end;
        strbuf_append(out, p, (size_t)(stop - p));
        if (less)
            strbuf_printf(out, "\\u003c");
        p = less ? less + 1 : end;
    }
}

static const struct report_file *page_file(const char *name, size_t n)
{
    const struct report_file *f = report_files;
    while (f->name && (strlen(f->name) != n || memcmp(f->name, name, n) != 0))
        f++;
    return f->name ? f : NULL;
}

/* The page with each {{FILE}} of it replaced by that file, and {{data}} by the data. */
static void put_page(const struct strbuf *data, struct strbuf *out)
{
    const struct report_file *page = page_file("report.html", 11);
    const char *p = (const char *)page->begin, *end = (const char *)page->end;
    while (p < end) {
        const char *open = memmem(p, (size_t)(end - p), "{{", 2);
        const char *close = open ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;
        strbuf_append(out, p, (size_t)((close ? open : end) - p));
        if (!close)
            return;
        const struct report_file *f = page_file(open + 2, (size_t)(close - open - 2));
        if (f)
            strbuf_append(out, f->begin, (size_t)(f->end - f->begin));
        else
            put_data(data, out);
        p = close + 2;
    }
}

/* ---- what goes into it ------------------------------------------------------------------------------------------- */

static void report_library(void *user, const char *library, struct compilation *c)
{
    struct reporting *r = user;
    struct context *ctx = r->measure.ctx;
    struct artifact_file *a = NEW(&ctx->session, struct artifact_file);
    struct workspace workspace;
    struct strbuf data = strbuf_of(&ctx->session), page = strbuf_of(&ctx->session);
    struct json j = {.out = &data};
    if (!artifact_read(ctx, library, false, a) || !workspace_ask(ctx, r->options, library, a, &workspace))
        return;
    const char *why = workspace.why ? workspace.why : r->options->no_run ? "--no-run was given" : NULL;
    r->measure.by_dims = c != NULL;
    if (!why && !measure(&r->measure, library))
        return;
    ctx->model_path = r->options->files.items.data[0];
    if (!report_json(c, a, &workspace, &r->measure, why, r->proof.json, &j))
        return;
    put_page(&data, &page);
    if (!output_write(ctx, r->output, page.data, page.n) || !r->options->document)
        return;
    struct json *result = &r->options->document->result;
    JSON_GROUP(result, NULL, "{", j_text("output", r->output), j_uint("bytes", page.n), j_text("not_run", why));
    json_whole(result, "proof", r->proof.json);
    json_close(result, "}");
}

static void report_end(void *user)
{
    measure_end(&((struct reporting *)user)->measure);
}

enum fail command_report(struct context *ctx, struct options *o)
{
    struct reporting *r = NEW(&ctx->session, struct reporting);
    *r = (struct reporting){.measure = {.ctx = ctx, .options = o}, .options = o};
    r->output = o->output ? o->output : output_beside(ctx, output_default(ctx, o, o->files.items.data[0]), "html");
    if (strcmp(r->output, "-") == 0)
        error_usage(ctx, "a report goes to a file: -o FILE.html");
    else if (beside_ok(ctx, o, r->output) && (!o->prove || proof_make(ctx, o, &r->proof))) {
        if (!o->threads)
            o->threads = 1;
        return with_library(ctx, o, false, report_library, report_end, r);
    }
    return ctx->fail;
}
