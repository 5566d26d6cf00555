/* -ftime-trace: the stages and the workers' jobs in the JSON of Chrome's trace viewer (about:tracing, Perfetto). */
#include "cli/backend.h"
#include "cli/json.h"

static void put_event(struct strbuf *out, uint32_t row, const char *name, const char *detail, double start_ms,
                      double ms)
{
    strbuf_printf(out, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"ts\":%.1f,\"dur\":%.1f,\"name\":", row, start_ms * 1e3,
                  ms * 1e3);
    json_string(out, name);
    strbuf_printf(out, ",\"args\":{\"detail\":");
    json_string(out, detail);
    strbuf_printf(out, "}}");
}

bool trace_write(struct compilation *c, const struct stage_cost *cost)
{
    struct strbuf out;
    double begin = cost[0].start;
    strbuf_init(&out, &c->ctx->session);
    strbuf_printf(
        &out,
        "{\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"mcc\"}}");
    for (uint32_t i = 0; i < stage_count; i++)
        if (cost[i].ran)
            put_event(&out, 0, stage_table[i].name, c->ctx->model_path, cost[i].start - begin, cost[i].ms);
    for (uint32_t i = 0; i < c->units.n; i++) {
        const struct codegen_unit *u = &c->units.data[i];
        if (u->ended > u->began)
            put_event(&out, u->worker + 1, u->symbol, u->target->cpu, u->began - begin, u->ended - u->began);
    }
    strbuf_printf(&out, "\n],\"displayTimeUnit\":\"ms\"}\n");
    return side_write(c, output_beside(c->ctx, c->output, "json"), out.data, out.n);
}
