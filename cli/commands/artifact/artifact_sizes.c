/* What the bytes of an artifact are: sections by what they hold, code by the variant whose kernel it is. */
#include "cli/commands/artifact/artifact_reader.h"

/* Kernels' symbols end in the last word of the CPU's name ("_v3" of "x86-64-v3 +fma4"), and then comes a dot and the
 * node's name. */
static void read_suffixes(struct reader *r)
{
    for (const char *p = r->out->api.features; *p && r->n_suffixes < VARIANTS_MAX;) {
        size_t n = strcspn(p, ","), end = strcspn(p, " ,"), tail = end;
        while (tail > 0 && p[tail - 1] != '-')
            tail--;
        r->suffixes[r->n_suffixes++] = (struct span){p + tail, end - tail};
        p += n + (p[n] == ',');
    }
}

/* The variant whose function `name` is; -1: none. */
static int variant_of(const struct reader *r, const char *name)
{
    size_t symbol = strcspn(name, "."), at = symbol;
    while (at > 0 && name[at - 1] != '_')
        at--;
    for (int i = 0; at > 0 && i < r->n_suffixes; i++)
        if (r->suffixes[i].size == symbol - at && memcmp(r->suffixes[i].data, name + at, symbol - at) == 0)
            return i;
    return -1;
}

static void add_part(struct reader *r, const struct file_part *p, struct sizes *out)
{
    uint64_t *const of[] = {[PART_FORMAT] = &out->symbols, [PART_CODE] = &out->code,       [PART_DATA] = &out->tables,
                            [PART_TABLES] = &out->tables,  [PART_WEIGHTS] = &out->weights, [PART_GRAPH] = &out->graph,
                            [PART_BUILD] = &out->headers,  [PART_DEBUG] = &out->debug};
    if (p->role != PART_ABSENT)
        *of[p->role] += p->size;
    if (p->role == PART_WEIGHTS)
        r->out->weights_at = r->f.base + p->at;
    if (p->role == PART_GRAPH)
        r->out->graph = (struct span){p->bytes, (size_t)p->size};
    if (p->role == PART_BUILD)
        r->out->build = (struct span){p->bytes, (size_t)p->size};
}

bool reader_measure(struct reader *r)
{
    struct sizes *out = &r->out->sizes;
    const struct file_part *note = r->f.note ? &r->f.parts[r->f.note - 1] : NULL;
    out->headers = r->f.headers + (r->f.slice ? 0 : r->f.base);
    for (uint32_t i = 0; i < r->f.n; i++)
        add_part(r, &r->f.parts[i], out);
    if (note && note->size >= sizeof r->out->note)
        memcpy(&r->out->note, note->bytes, sizeof r->out->note);
    read_suffixes(r);
    for (uint32_t k = 0; k < r->f.functions.n; k++) {
        const struct file_function *f = &r->f.functions.data[k];
        if (!reader_spend_text(r, f->name))
            return false;
        int variant = variant_of(r, f->name);
        if (variant < 0)
            continue;
        out->variant[variant] += f->size;
        struct code_size size = {f->name, variant, f->size};
        VEC_PUSH(r->f.arena, &r->out->functions, size);
    }
    if (r->out->desc.weights_file)
        out->sidecar = r->out->desc.sidecar_head + r->out->desc.weights_size;
    out->weights_padding = r->out->note.weights_padding;
    return true;
}
