/* How diagnostics are shown: lines of text, JSON (an object a line) or SARIF 2.1.0 (one log for all of them). */
#include "cli/library/compile/compile.h"
#include "cli/library/json.h"
#include "cli/library/mccc.h"

static const char *const severity_words[] = {"note", "remark", "warning", "error"};
static const char *const class_words[] = {"none", "model", "usage", "environment", "limit", "internal", "claim"};

static bool shown(const struct diag *d, const struct options *o)
{
    const struct row {
        const char *flag;
        bool asked, unwanted;
    } rows[] = {
        {"if", o->remark_if, o->no_remark_if},
        {"loop", o->remark_loop, o->no_remark_loop},
    };
    const struct row *row = d->severity == SEV_REMARK && d->flag ? ROW_NAMED(rows, COUNT_OF(rows), d->flag) : NULL;
    return row ? row->asked || !(row->unwanted || o->quiet) : !o->quiet || d->severity == SEV_ERROR;
}

static void put(struct report report, const struct diag *d, struct strbuf *line)
{
    strbuf_append(line, "\n", 1);
    report.put(report.user, d ? (int)d->severity : TEXT_LOG, line->data, line->n);
    line->n = 0;
}

/* A member that is there only where there is a text. */
static void member(struct json *j, const char *name, const char *text)
{
    if (text && *text)
        json_text(j, name, text);
}

/* A diagnostic as an object: a line of -fdiagnostics-format=json, an item of --json. */
static void put_object(const struct context *ctx, const struct diag *d, struct json *j)
{
    const struct source *s = d->src.i ? source_get(ctx, d->src) : NULL;
    JSON_GROUP(j, NULL, "{", j_text("severity", severity_words[d->severity]));
    if (d->severity == SEV_ERROR)
        member(j, "class", class_words[d->fail]);
    member(j, "file", ctx->model_path);
    if (ctx->line)
        JSON_ADD(j, j_uint("line", ctx->line), j_uint("column", ctx->column));
    if (s) {
        member(j, "node", s->name);
        member(j, "operator", s->op);
        member(j, "domain", s->domain);
        member(j, "result", s->output);
        member(j, "source", s->origin);
        if (s->version > 0)
            json_int(j, "version", s->version);
    }
    member(j, "tensor", d->tensor);
    member(j, "flag", d->flag);
    member(j, "message", d->text);
    JSON_ADD(j, j_uint("times", (uint64_t)d->repeats + 1), j_uint("more", d->similar));
    json_close(j, "}");
}

/* A line for each. */
static void put_lines(struct context *ctx, struct report report, const struct options *o)
{
    struct strbuf line = strbuf_of(&ctx->session);
    for (uint32_t i = 0; i < ctx->diags.n; i++) {
        const struct diag *d = &ctx->diags.data[i];
        if (!shown(d, o))
            continue;
        if (o->diagnostics == OPT_DIAGNOSTICS_JSON)
            put_object(ctx, d, &(struct json){.out = &line});
        else
            diag_render(ctx, d, &line);
        put(report, d, &line);
    }
}

/* A path as a URI reference: what is neither a letter, a digit nor one of -._~/ becomes %NN. */
static void put_uri(struct strbuf *out, const char *path)
{
    strbuf_append(out, "\"", 1);
    for (const char *p = path; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ||
                     strchr("-._~/", *p);
        strbuf_printf(out, plain ? "%c" : "%%%02X", (unsigned char)*p);
    }
    strbuf_append(out, "\"", 1);
}

static void put_result(const struct context *ctx, const struct diag *d, struct strbuf *out)
{
    static const char *const levels[] = {"note", "note", "warning", "error"};
    const struct source *s = d->src.i ? source_get(ctx, d->src) : NULL;
    strbuf_printf(out, "{\"ruleId\":");
    json_string(out, d->flag ? d->flag : class_words[d->fail]);
    strbuf_printf(out, ",\"level\":\"%s\",\"message\":{\"text\":", levels[d->severity]);
    json_string(out, d->text);
    strbuf_printf(out, "},\"occurrenceCount\":%u,\"locations\":[{\"physicalLocation\":{\"artifactLocation\":{\"uri\":",
                  d->repeats + 1);
    put_uri(out, ctx->model_path);
    strbuf_printf(out, "}");
    if (ctx->line)
        strbuf_printf(out, ",\"region\":{\"startLine\":%u,\"startColumn\":%u}", ctx->line, ctx->column);
    strbuf_printf(out, "}");
    const char *name = s ? source_label(s) : d->tensor;
    if (name) {
        strbuf_printf(out, ",\"logicalLocations\":[{\"name\":");
        json_string(out, name);
        strbuf_printf(out, ",\"kind\":\"%s\"}]", s ? "element" : "variable");
    }
    strbuf_printf(out, "}]}");
}

static void put_sarif(struct context *ctx, struct report report, const struct options *o)
{
    const char *comma = "";
    struct strbuf log = strbuf_of(&ctx->session);
    strbuf_printf(
        &log,
        "{\"$schema\":\"https://json.schemastore.org/sarif-2.1.0.json\",\"version\":\"2.1.0\",\"runs\":[{\"tool\":{\"driver\":"
        "{\"name\":\"mcc\",\"version\":\"" MCCC_VERSION "\"}},\"results\":[");
    for (uint32_t i = 0; i < ctx->diags.n; i++) {
        if (!shown(&ctx->diags.data[i], o))
            continue;
        strbuf_printf(&log, "%s", comma);
        put_result(ctx, &ctx->diags.data[i], &log);
        comma = ",";
    }
    strbuf_printf(&log, "]}]}");
    put(report, NULL, &log);
}

void report_diagnostics(struct context *ctx, struct report report, const struct options *o)
{
    for (uint32_t i = 0; i < ctx->diags.n && o->document; i++)
        if (shown(&ctx->diags.data[i], o))
            put_object(ctx, &ctx->diags.data[i], &o->document->diagnostics);
    if (ctx->diags.n)
        (o->diagnostics == OPT_DIAGNOSTICS_SARIF ? put_sarif : put_lines)(ctx, report, o);
    ctx->diags.n = 0;
}
