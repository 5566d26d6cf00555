/* -ftime-trace: the stages and the workers' jobs in the JSON of Chrome's trace viewer (about:tracing, Perfetto). */
#include "cli/library/compile/backend.h"
#include "cli/library/json.h"

void trace_open(struct json *j, const char *process)
{
    json_open(j, NULL, '{');
    json_open(j, "traceEvents", '[');
    JSON_GROUP(j, NULL, "{", j_text("ph", "M"), j_uint("pid", 1), j_uint("tid", 0), j_text("name", "process_name"));
    JSON_GROUP(j, "args", "{}", j_text("name", process));
    json_close(j, "}");
}

void trace_event(struct json *j, uint32_t row, const char *name, const char *detail, double start_us, double us)
{
    JSON_GROUP(j, NULL, "{}", j_text("ph", "X"), j_uint("pid", 1), j_uint("tid", row), j_real("ts", start_us),
               j_real("dur", us), j_text("name", name), j_text("cat", detail));
}

void trace_close(struct json *j, const char *unit)
{
    json_close(j, "]");
    json_text(j, "displayTimeUnit", unit);
    json_close(j, "}");
    strbuf_append(j->out, "\n", 1);
}

bool trace_write(struct compilation *c)
{
    const struct stage_cost *cost = c->costs;
    struct strbuf out = strbuf_of(&c->ctx->session);
    struct json j = {.out = &out};
    double begin = cost[0].start;
    trace_open(&j, "mcc");
    for (uint32_t i = 0; i < stage_count; i++)
        if (cost[i].ran)
            trace_event(&j, 0, stage_table[i].name, c->ctx->model_path, (cost[i].start - begin) * 1e3,
                        cost[i].ms * 1e3);
    for (uint32_t i = 0; i < c->units.n; i++) {
        const struct codegen_unit *u = &c->units.data[i];
        if (u->ended > u->began)
            trace_event(&j, u->worker + 1, u->symbol, u->target->cpu, (u->began - begin) * 1e3,
                        (u->ended - u->began) * 1e3);
    }
    trace_close(&j, "ms");
    return side_write(c, output_beside(c->ctx, c->output, "json"), out.data, out.n);
}
