/* OperatorSetIdProto -> opset: which version of which domain a model or a function imports. */
#include "frontend/onnx/schemas.h"

const char *domain_normal(const char *domain)
{
    return !domain || strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

static const char *domain_shown(const char *domain)
{
    return *domain ? domain : "ai.onnx";
}

bool opsets_import(struct importer *im, Onnx__OperatorSetIdProto *const *imports, size_t n, const char *of,
                   struct opset **out, uint32_t *n_out)
{
    struct names seen;
    bool ok = true;
    const char *what = of ? "function " : "", *who = of ? of : "the model";
    if (n > OPSETS_MAX)
        return error_limit(im->ctx, (src_id){0}, "%s%s imports %zu domains, the limit is %d", what, who, n, OPSETS_MAX);
    names_init(&seen, &im->scratch);
    *out = NEW_ARRAY(&im->g->arena, struct opset, n);
    *n_out = 0;
    for (size_t i = 0; i < n; i++) {
        const char *domain = domain_normal(imports[i]->domain);
        long long version = imports[i]->has_version ? imports[i]->version : 0;
        const struct binding *b = name_lookup(&seen, domain);
        if (b && (*out)[b->value.i].version == version)   /* both spellings of the default domain, say */
            continue;
        if (b)
            ok = error_model(im->ctx, (src_id){0}, "%s%s imports versions %lld and %lld of domain %s", what, who,
                             (long long)(*out)[b->value.i].version, version, domain_shown(domain));
        name_bind(&seen, domain, (value_id){*n_out}, 0);
        if (version < 1)
            ok = error_model(im->ctx, (src_id){0}, "%s%s imports version %lld of domain %s", what, who, version,
                             domain_shown(domain));
        int32_t newest = domain_newest(domain);
        if (newest && version > newest)
            ok = error_model(im->ctx, (src_id){0},
                             "%s%s imports version %lld of domain %s; versions up to %d are known", what, who, version,
                             domain_shown(domain), newest);
        (*out)[(*n_out)++] = (struct opset){arena_strdup(&im->g->arena, domain), version};
    }
    return ok;
}
