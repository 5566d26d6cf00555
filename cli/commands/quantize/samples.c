/* Samples of a network's inputs: .npy and .pb files, folders of them, or drawn values. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

#include "cli/commands/quantize/trial.h"

enum { DRAWN = 8 };

struct pile {
    VEC(struct file_tensor) of;
    struct text_list from; /* the file of each */
};

static void describe(const struct file_tensor *b, struct strbuf *out)
{
    strbuf_printf(out, "%s[", elem_name(b->elem));
    for (int32_t d = 0; d < b->rank; d++)
        strbuf_printf(out, d ? ",%lld" : "%lld", (long long)b->dims[d]);
    strbuf_printf(out, "]");
}

/* Does the sample fit except for its dim 0? */
static bool fits_after(const mcc_port *port, const struct file_tensor *b)
{
    bool fits = b->rank == port->ndim;
    for (int32_t d = 1; fits && d < b->rank; d++)
        fits = port->dims[d].extent < 0 || port->dims[d].extent == b->dims[d];
    return fits;
}

static bool all_finite(const struct file_tensor *b)
{
    uint32_t size = elem_size(b->elem);
    for (size_t i = 0; elem_class(b->elem) == 'F' && i + size <= b->size; i += size)
        if (!isfinite(elem_to_f64(b->elem, (const char *)b->data + i)))
            return false;
    return true;
}

/* One file: a sample, or several of a fixed first dim one after another. */
static bool read_sample(struct session *s, uint32_t index, const char *path, struct pile *pile)
{
    const mcc_port *port = &s->api->in[index];
    struct file_tensor b = {0};
    struct strbuf text, unused;
    if (!file_tensor_read(s->ctx, path, &b))
        return false;
    if (b.rank + 1 == port->ndim && b.rank < RANK_MAX && (port->dims[0].extent == 1 || port->dims[0].extent < 0)) {
        memmove(b.dims + 1, b.dims, sizeof *b.dims * (size_t)b.rank);
        b.dims[0] = 1;
        b.rank++;
    }
    int64_t first = port->ndim > 0 ? port->dims[0].extent : -1;
    if (b.elem != elem_by_dlpack(port->dtype) || !fits_after(port, &b) ||
        (first >= 0 && (first == 0 || b.dims[0] % first || !b.dims[0]))) {
        strbuf_init(&text, &s->ctx->session);
        strbuf_init(&unused, &s->ctx->session);
        strbuf_printf(&text, "the sample '%s' is ", path);
        describe(&b, &text);
        strbuf_printf(&text, ", the input takes ");
        port_describe(s->api, port, &unused, &(uint32_t){0}, &text);
        return error_at(s->ctx, FAIL_USAGE, (src_id){0}, port->name, "%s", text.data);
    }
    if (!all_finite(&b))
        return error_at(s->ctx, FAIL_USAGE, (src_id){0}, port->name, "the sample '%s' holds a NaN or an infinity",
                        path);
    int64_t parts = first > 0 ? b.dims[0] / first : 1;
    b.dims[0] = first > 0 ? first : b.dims[0];
    b.size /= (size_t)parts;
    for (int64_t k = 0; k < parts; k++) {
        VEC_PUSH(&s->ctx->session, &pile->of, b);
        VEC_PUSH(&s->ctx->session, &pile->from.items, path);
        b.data = (char *)b.data + b.size;
    }
    return true;
}

struct folder {
    struct arena *arena;
    DIR *dir;
    const char *path;
    struct text_list files;
};

static bool folder_list(void *user)
{
    struct folder *f = user;
    for (struct dirent *d = readdir(f->dir); d; d = readdir(f->dir)) {
        const char *suffix = strrchr(d->d_name, '.');
        if (suffix && (strcmp(suffix, ".npy") == 0 || strcmp(suffix, ".pb") == 0))
            VEC_PUSH(f->arena, &f->files.items, arena_printf(f->arena, "%s/%s", f->path, d->d_name));
    }
    return true;
}

static void folder_end(void *user)
{
    closedir(((struct folder *)user)->dir);
}

/* The files of a folder, in the order of their names. */
static bool read_folder(struct session *s, uint32_t index, const char *folder, struct pile *pile)
{
    struct folder f = {.arena = &s->ctx->session, .dir = opendir(folder), .path = folder};
    if (!f.dir)
        return error_env(s->ctx, "cannot read the folder '%s': %s", folder, strerror(errno));
    run_guarded(s->ctx, folder_list, folder_end, &f);
    if (!f.files.items.n)
        return error_at(s->ctx, FAIL_USAGE, (src_id){0}, s->api->in[index].name,
                        "'%s' has no .npy or .pb file, which samples are", folder);
    qsort(f.files.items.data, f.files.items.n, sizeof *f.files.items.data, by_text);
    for (uint32_t i = 0; i < f.files.items.n; i++)
        if (!read_sample(s, index, f.files.items.data[i], pile))
            return false;
    return true;
}

/* All that --sample says of one input. */
static bool read_input(struct session *s, uint32_t index, const struct text_list *given, struct pile *pile)
{
    const char *name = s->api->in[index].name;
    size_t n = strlen(name);
    for (uint32_t i = 0; i < given->items.n; i++) {
        const char *text = given->items.data[i], *path = text + n + 1;
        struct stat st;
        if (strncmp(text, name, n) != 0 || text[n] != '=')
            continue;
        bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
        if (!(folder ? read_folder(s, index, path, pile) : read_sample(s, index, path, pile)))
            return false;
    }
    return pile->of.n || error_at(s->ctx, FAIL_USAGE, (src_id){0}, name,
                                  "this input has no sample; give --sample NAME=FILE for each input, or for none");
}

static bool draw(struct session *s, struct samples *out)
{
    *out = (struct samples){.n = DRAWN, .n_inputs = s->api->n_in, .drawn = true};
    out->of = NEW_ARRAY(&s->ctx->session, struct file_tensor, DRAWN * out->n_inputs + 1);
    out->from = NEW_ARRAY(&s->ctx->session, const char *, DRAWN);
    for (uint32_t k = 0; k < DRAWN; k++)
        out->from[k] = "drawn";
    if (!session_feed(s, true))
        return false;
    for (uint32_t k = 0; k < DRAWN * out->n_inputs; k++) {
        out->of[k] = s->in[k % out->n_inputs];
        if (!file_tensor_alloc(s->ctx, &out->of[k]))
            return false;
        file_tensor_random(&out->of[k], k + 1);
    }
    return true;
}

bool samples_load(struct session *s, const struct text_list *given, struct samples *out)
{
    struct arena *arena = &s->ctx->session;
    uint32_t n = s->api->n_in;
    const char **names = NEW_ARRAY(arena, const char *, n + 1);
    struct pile *piles = NEW_ARRAY(arena, struct pile, n + 1);
    for (uint32_t i = 0; i < n; i++)
        names[i] = s->api->in[i].name;
    if (!feeds_known(s->ctx, given, names, n))
        return false;
    if (!given->items.n)
        return draw(s, out);
    for (uint32_t i = 0; i < n; i++) {
        if (!read_input(s, i, given, &piles[i]))
            return false;
        if (piles[i].of.n != piles[0].of.n)
            return error_at(s->ctx, FAIL_USAGE, (src_id){0}, names[i],
                            "there are %u samples of this input and %u of '%s'; give as many of each", piles[i].of.n,
                            piles[0].of.n, names[0]);
    }
    *out = (struct samples){.n = n ? piles[0].of.n : 1, .n_inputs = n};
    out->of = NEW_ARRAY(arena, struct file_tensor, out->n * n + 1);
    out->from = NEW_ARRAY(arena, const char *, out->n + 1);
    for (uint32_t k = 0; k < out->n; k++)
        out->from[k] = n ? piles[0].from.items.data[k] : "";
    for (uint32_t k = 0; k < out->n * n; k++)
        out->of[k] = piles[k % n].of.data[k / n];
    return true;
}
