/* Artifact -> library, object or archive: table, kernels and runtime linked by lld in a worker, then written with the
 * weights in place, as the container of the platform does it (container/). The linker's files are nameless, so nothing
 * that a user wrote reaches its command line.
 */

#include "codegen/names.h"
#include "codegen/table.h"
#include "codegen/wire.h"

static bool run_linker(struct codegen *g, struct linking *l, struct span *image)
{
    struct job job = {.what = "linking"};
    if (!l->options.n)
        return true;
    struct span *parts = NEW_ARRAY(l->arena, struct span, LINK_FILES + l->files.n);
    parts[LINK_OPTIONS] = (struct span){l->options.data, l->options.n};
    for (uint32_t i = 0; i < l->files.n; i++)
        parts[LINK_FILES + i] = l->files.data[i];
    job.parts = parts;
    job.head.kind = WIRE_LINK;
    job.head.n_parts = LINK_FILES + (uint64_t)l->files.n;
    return codegen_last(g, &job, image);
}

bool codegen_static(struct codegen *g, const struct static_network *n, const char *path)
{
    const char *triple = n->units[0].target->triple;
    const struct platform *platform = platform_of_triple(triple);
    const struct container *c = container_of(platform);
    struct context *ctx = codegen_context(g);
    if (c && c->network)
        return c->network(ctx, n, platform, path);
    if (!c || !c->network_link)
        return error_internal(ctx, (src_id){0}, "no static networks for target '%s'", triple);
    struct linking l = {.arena = &ctx->session, .platform = platform};
    struct linked linked = {.ctx = ctx, .arena = &ctx->session, .network = n, .weights = &n->weights, .path = path};
    strbuf_init(&l.options, l.arena);
    c->network_link(&l, n);
    return run_linker(g, &l, &linked.bytes) && c->library(&linked);
}

bool codegen_link(struct codegen *g, const struct artifact *a, enum output_kind kind, const char *path)
{
    struct context *ctx = codegen_context(g);
    const char *triple = a->variants[0].target->triple;
    const struct platform *platform = platform_of_triple(triple);
    const struct container *c = container_of(platform);
    struct arena arena;
    if (!c)
        return error_internal(ctx, (src_id){0}, "no linker for target '%s'", triple);
    arena_init(&arena, ctx);
    const char *prefix = a->prefix && *a->prefix ? a->prefix : NULL;
    const char *query = prefix ? arena_printf(&arena, "%s_mcc_query", prefix) : "mcc_query";
    struct function_names names = names_make(&arena, a);
    const struct object table = table_object(&arena, a);
    struct linking l = {.arena = &arena,
                        .platform = platform,
                        .kind = kind,
                        .query = query,
                        .weights = a->weights.size > 0 && !a->weights.sidecar,
                        .debug = a->n_units > 0 && a->units[0].line > 0,
                        .table = c->object(&arena, platform, &table),
                        .units = a->units,
                        .n_units = a->n_units};
    struct linked linked = {.ctx = ctx,
                            .arena = &arena,
                            .from = &l,
                            .weights = &a->weights,
                            .names = &names,
                            .query = query,
                            .kind = kind,
                            .path = path};
    bool ok = l.table.data || error_limit(ctx, (src_id){0}, "files of '%s' hold at most 2 GiB of tables", triple);
    strbuf_init(&l.options, &arena);
    c->link(&l);
    ok = ok && run_linker(g, &l, &linked.bytes);
    ok = ok && (kind == OUTPUT_SHARED ? c->library(&linked) : c->merged(&linked));
    arena_release(&arena);
    return ok;
}
