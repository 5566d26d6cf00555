/* What the bytes of an artifact are: sections by what they hold, code by the variant whose kernel it is. */
#include <string.h>

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

static void add_section(struct reader *r, uint32_t i, struct sizes *out)
{
    const Elf64_Shdr *s = &r->sections[i];
    bool debug = strncmp(r->names[i], ".debug_", 7) == 0 || strncmp(r->names[i], ".rela.debug_", 12) == 0;
    if (s->sh_type == SHT_NULL || s->sh_type == SHT_NOBITS)
        return;
    if (debug)
        out->debug += s->sh_size;
    else if (reader_is_graph(r, i))
        out->graph += s->sh_size;
    else if (s->sh_flags & SHF_EXECINSTR)
        out->code += s->sh_size;
    else if ((s->sh_flags & SHF_ALLOC) || (r->head.e_type == ET_REL && s->sh_type == SHT_RELA))
        out->tables += s->sh_size;
    else
        out->symbols += s->sh_size;
}

bool reader_measure(struct reader *r)
{
    struct sizes *out = &r->out->sizes;
    out->headers = sizeof r->head + (uint64_t)r->head.e_phnum * sizeof(Elf64_Phdr) + r->n * sizeof(Elf64_Shdr) +
                   r->base;
    for (uint32_t i = 0; i < r->n; i++) {
        if (!reader_is_weights(r, i))
            add_section(r, i, out);
        if (strcmp(r->names[i], ".note.mcc") == 0 && r->data[i] && r->sections[i].sh_size >= sizeof r->out->note)
            memcpy(&r->out->note, r->data[i], sizeof r->out->note);
    }
    read_suffixes(r);
    for (uint64_t k = 0; k < r->n_symbols; k++) {
        if (ELF64_ST_TYPE(r->symbols[k].st_info) != STT_FUNC)
            continue;
        if (!reader_spend_text(r, reader_symbol_name(r, k)))
            return false;
        int variant = variant_of(r, reader_symbol_name(r, k));
        if (variant < 0)
            continue;
        out->variant[variant] += r->symbols[k].st_size;
        struct code_size size = {reader_symbol_name(r, k), variant, r->symbols[k].st_size};
        VEC_PUSH(r->arena, &r->out->functions, size);
    }
    if (r->out->desc.weights_file)
        out->sidecar = r->out->desc.sidecar_head + r->out->desc.weights_size;
    out->weights_padding = r->out->note.weights_padding;
    return true;
}
