/* Decoders by the names of their ports. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "decoder.h"

enum { PIECE = 64 };

__attribute__((format(printf, 2, 3))) static int fail(mcc_error *error, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    error->code = MCC_E_ARG;
    vsnprintf(error->text, sizeof error->text, format, list);
    va_end(list);
    return 0;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static int port_find(const mcc_port *port, uint32_t n, const char *name)
{
    for (uint32_t i = 0; name && i < n; i++)
        if (strcmp(port[i].name, name) == 0)
            return (int)i;
    return -1;
}

/* The digits that stand for %d of the pattern, which `tail` follows; 0: the name is not of its form. */
static int layer_of(const char *pattern, const char *tail, const char *name, char digits[16])
{
    const char *hole = strstr(pattern, "%d");
    size_t head = hole ? (size_t)(hole - pattern) : 0, n;
    if (!hole || strncmp(pattern, name, head) != 0)
        return 0;
    n = strspn(name + head, "0123456789");
    size_t left = strlen(hole + 2);
    if (n == 0 || n > 9 || strncmp(name + head + n, hole + 2, left) != 0 || strcmp(name + head + n + left, tail) != 0)
        return 0;
    snprintf(digits, 16, "%.*s", (int)n, name + head);
    return 1;
}

/* The output of the pattern's name for that layer; -1: there is none. */
static int present_find(const mcc_api *api, const char *pattern, const char *tail, const char *digits)
{
    char name[256];
    const char *hole = strstr(pattern, "%d");
    if (!hole)
        return -1;
    snprintf(name, sizeof name, "%.*s%s%s%s", (int)(hole - pattern), pattern, digits, hole + 2, tail);
    return port_find(api->out, api->n_out, name);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void tensor_set(struct decoder_port *p, const mcc_port *port, const void *data)
{
    p->tensor = (DLTensor){(void *)data, {kDLCPU, 0}, port->ndim, port->dtype, p->shape, NULL, 0};
}

/* A cache [batch, heads, rows, size]: what the input leaves open the output may say. */
static int cache_shape(struct decoder *d, int k, mcc_error *error)
{
    struct decoder_port *p = &d->in[k];
    const mcc_port *in = &d->api->in[k], *out = &d->api->out[p->output];
    if (in->ndim != 4 || out->ndim != 4)
        return fail(error, "input '%s' is no cache [batch, heads, tokens, size]", in->name);
    for (int i = 1; i < 4; i++)
        p->shape[i] = in->dims[i].extent >= 0 ? in->dims[i].extent : out->dims[i].extent;
    p->shape[0] = 1;
    p->shape[2] = 0;
    if (p->shape[1] < 1 || p->shape[3] < 1 || p->shape[1] > 1 << 16 || p->shape[3] > 1 << 16)
        return fail(error, "neither input '%s' nor its output says how many heads of which size it has", in->name);
    tensor_set(p, in, NULL);
    return 1;
}

/* 1 + the dim that is the rank; 0: not an input of an adapter. mcc --lora names it PATH.lora_A, other exporters add
 * what decoder.h says. */
static int adapts(const mcc_port *port)
{
    static const char *const ends[] = DECODER_LORA_ENDS;
    const char *at = strstr(port->name, ".lora_");
    for (const char *more = at; more; more = strstr(more + 1, ".lora_"))
        at = more;
    int dim = at && (at[6] == 'A' || at[6] == 'B') ? at[6] == 'A' : -1, ended = 0;
    for (size_t i = 0; dim >= 0 && i < sizeof ends / sizeof *ends; i++)
        ended |= strcmp(at + 7, ends[i]) == 0;
    int numbers = (port->dtype.code == kDLFloat && (port->dtype.bits == 32 || port->dtype.bits == 16)) ||
                  (port->dtype.code == kDLBfloat && port->dtype.bits == 16);
    return ended && numbers && port->ndim == 2 && port->dims[dim].symbol >= 0 && port->dims[dim].extent == -1 &&
                   port->dims[!dim].extent > 0
               ? 1 + dim
               : 0;
}

/* What mcc adds to a cache's name for the scales of its integers (--cache-type=int8), which are kept as the cache is;
 * "": nothing. */
static const char *scales_of(const char *name)
{
    static const char tail[] = ".scale";
    size_t n = strlen(name);
    return n >= sizeof tail && strcmp(name + n + 1 - sizeof tail, tail) == 0 ? tail : "";
}

/* Past and present of a cache of a window are equally long, and apart: by name, or by a number. */
static int64_t window_of(const mcc_api *api, uint32_t k, int output, int64_t rows)
{
    const mcc_dim *past = &api->in[k].dims[2], *present = &api->out[output].dims[2];
    if (rows < 1 || api->out[output].alias || past->extent != present->extent)
        return 0;
    return past->extent >= 0 ? past->extent : past->symbol >= 0 && past->symbol == present->symbol ? rows : 0;
}

static int ports_find(struct decoder *d, const struct decoder_names *names, mcc_error *error)
{
    const mcc_api *api = d->api;
    char digits[16];
    int caches = 0;
    d->ids = port_find(api->in, api->n_in, names->ids);
    d->mask = port_find(api->in, api->n_in, names->mask);
    d->positions = port_find(api->in, api->n_in, names->positions);
    d->logits = port_find(api->out, api->n_out, names->logits);
    d->shared = d->ids >= 0 && d->logits >= 0;
    if (!d->shared)
        return fail(error, "the network has no input '%s' or no output '%s'", names->ids, names->logits);
    for (uint32_t k = 0; k < api->n_in; k++) {
        d->in[k].output = -1;
        d->in[k].adapts = adapts(&api->in[k]);
        const char *tail = scales_of(api->in[k].name);
        for (const struct decoder_cache *c = names->caches; c && c->past; c++)
            if (layer_of(c->past, tail, api->in[k].name, digits)) {
                d->in[k].output = present_find(api, c->present, tail, digits);
                d->in[k].fixed = c->fixed;
                if (d->in[k].output < 0)
                    return fail(error, "no output goes on with '%s'", api->in[k].name);
                if (!cache_shape(d, (int)k, error))
                    return 0;
                caches++;
                d->in[k].room = api->in[k].dims[2].room;
                if (d->in[k].room && d->in[k].room < d->rows)
                    d->rows = d->in[k].room;
                d->in[k].window = window_of(api, k, d->in[k].output, names->window);
                d->windows |= d->in[k].window > 0;
                d->shared &= !c->fixed && (d->in[k].window || api->out[d->in[k].output].alias == k + 1);
            }
    }
    return caches > 0 || fail(error, "the network has no caches");
}

static int is_i64(const mcc_port *p)
{
    return p->dtype.code == kDLInt && p->dtype.bits == 64 && p->ndim == 2;
}

static int types_check(struct decoder *d, mcc_error *error)
{
    const int whole[] = {d->ids, d->mask, d->positions};
    const mcc_port *logits = &d->api->out[d->logits];
    for (int i = 0; i < 3; i++)
        if (whole[i] >= 0 && !is_i64(&d->api->in[whole[i]]))
            return fail(error, "input '%s' is not i64 [batch, tokens]", d->api->in[whole[i]].name);
    if (logits->dtype.code != kDLFloat || logits->dtype.bits != 32 || logits->ndim != 3 || logits->dims[2].extent < 1 ||
        logits->dims[2].extent > 1 << 24)
        return fail(error, "output '%s' is not f32 [batch, tokens, words]", logits->name);
    d->vocabulary = logits->dims[2].extent;
    return 1;
}

/* A buffer that is input k and its output; pages that no token reached take no memory. */
static int cache_new(struct decoder *d, uint32_t k)
{
    struct decoder_port *p = &d->in[k];
    int64_t rows = p->room ? p->room : p->window ? p->window : d->rows, *s = p->strides;
    s[3] = 1;
    s[2] = p->shape[3];
    s[1] = s[2] * rows;
    s[0] = s[1] * p->shape[1];
    p->shape[2] = rows;
    p->tensor.data = calloc((size_t)(d->slots * s[0]), (p->tensor.dtype.bits + 7u) / 8);
    memcpy(p->present_shape, p->shape, sizeof p->present_shape);
    p->present = p->tensor;
    p->present.shape = p->present_shape;
    if (p->window)
        p->present.data = calloc((size_t)(d->slots * s[0]), (p->tensor.dtype.bits + 7u) / 8);
    if (p->room)
        p->tensor.strides = p->present.strides = s;
    return p->tensor.data && p->present.data;
}

static int buffers_new(struct decoder *d, mcc_error *error)
{
    int ok = (d->counted = malloc((size_t)d->rows * sizeof *d->counted)) != NULL;
    ok = ok && (d->ones = malloc((size_t)d->rows * sizeof *d->ones));
    for (int64_t i = 0; ok && i < d->rows; i++) {
        d->counted[i] = i;
        d->ones[i] = 1;
    }
    for (uint32_t k = 0; ok && d->shared && k < d->api->n_in; k++)
        ok = d->in[k].output < 0 || cache_new(d, k);
    return ok || fail(error, "no memory for caches of %lld tokens", (long long)d->rows);
}

int decoder_new(struct decoder *d, mcc_lib *lib, const struct decoder_names *names, int64_t rows, int64_t slots,
                mcc_error *error)
{
    *d = (struct decoder){.lib = lib, .api = lib->api, .rows = rows, .slots = slots};
    d->in = calloc(d->api->n_in + 1, sizeof *d->in);
    d->ins = calloc(d->api->n_in + 1, sizeof *d->ins);
    d->outs = calloc(d->api->n_out + 1, sizeof *d->outs);
    d->made = calloc(d->api->n_out + 1, sizeof *d->made);
    int ok = (d->in && d->ins && d->outs && d->made) || fail(error, "no memory");
    ok = ok && ((rows >= 1 && rows <= 1 << 24) || fail(error, "a context of %lld tokens", (long long)rows));
    ok = ok && d->api->ctx_new(d->lib->model, NULL, 0, &d->ctx, error) == MCC_OK;
    ok = ok && ports_find(d, names, error) && types_check(d, error) && buffers_new(d, error);
    if (ok)
        decoder_adapt(d, NULL);
    if (!ok)
        decoder_close(d);
    return ok;
}

int decoder_open(struct decoder *d, const char *path, uint32_t threads, const struct decoder_names *names, int64_t rows,
                 mcc_error *error)
{
    mcc_host host = {.size = sizeof host, .threads = threads};
    mcc_lib *lib;
    *d = (struct decoder){0};
    return mcc_load(path, &host, &lib, error) == MCC_OK && decoder_new(d, lib, names, rows, 1, error);
}

int decoder_bind(struct decoder *d, const char *name, const void *data, int rank, const int64_t *shape,
                 mcc_error *error)
{
    int k = port_find(d->api->in, d->api->n_in, name);
    if (k < 0 || d->api->in[k].ndim != rank || rank > 8)
        return fail(error, "the network has no input '%s' of rank %d", name, rank);
    memcpy(d->in[k].shape, shape, (size_t)rank * sizeof *shape);
    tensor_set(&d->in[k], &d->api->in[k], data);
    d->in[k].bound = 1;
    return 1;
}

void decoder_adapt(struct decoder *d, const struct adapter *a)
{
    for (uint32_t k = 0; k < d->api->n_in; k++) {
        struct decoder_port *p = &d->in[k];
        if (!p->adapts)
            continue;
        int rank = p->adapts - 1;
        p->shape[rank] = a ? a->rank : 0;
        p->shape[!rank] = d->api->in[k].dims[!rank].extent;
        tensor_set(p, &d->api->in[k], a ? a->data[k] : NULL);
        p->bound = 1;
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void whole_set(struct decoder *d, int k, const int64_t *data, int64_t n)
{
    if (k < 0)
        return;
    d->in[k].shape[0] = 1;
    d->in[k].shape[1] = n;
    tensor_set(&d->in[k], &d->api->in[k], data);
    d->in[k].bound = 1;
}

/* Caches are read and written in their one place. */
static const float *step_shared(struct decoder *d, int64_t n, mcc_error *error)
{
    const mcc_port *port = &d->api->out[d->logits];
    int64_t tokens = port->dims[1].extent == 1 ? 1 : n, shape[] = {1, tokens, d->vocabulary};
    DLTensor logits = {NULL, {kDLCPU, 0}, 3, port->dtype, shape, NULL, 0};
    if (tokens > d->row_tokens) {
        float *more = realloc(d->row, (size_t)(tokens * d->vocabulary) * sizeof *more);
        if (!more)
            return fail(error, "no memory for logits"), NULL;
        d->row = more;
        d->row_tokens = tokens;
    }
    logits.data = d->row;
    for (uint32_t k = 0; k < d->api->n_out; k++)
        d->outs[k] = NULL;
    d->outs[d->logits] = &logits;
    for (uint32_t k = 0; k < d->api->n_in; k++) {
        struct decoder_port *p = &d->in[k];
        if (p->output < 0)
            continue;
        if (p->room) {
            p->shape[2] = d->n;
            p->present_shape[2] = d->n + n;
        }
        d->outs[p->output] = &p->present;
    }
    for (uint32_t k = 0; k < d->api->n_out; k++)
        if (!d->outs[k])
            return fail(error, "output '%s' is neither logits nor a cache", d->api->out[k].name), NULL;
    if (d->api->run(d->ctx, d->ins, d->outs, error) != MCC_OK)
        return NULL;
    for (uint32_t k = 0; k < d->api->n_in; k++)
        if (d->in[k].window) {
            void *past = d->in[k].tensor.data;
            d->in[k].tensor.data = d->in[k].present.data;
            d->in[k].present.data = past;
        }
    return d->row + (tokens - 1) * d->vocabulary;
}

static void release(DLManagedTensorVersioned **t)
{
    if (*t && (*t)->deleter)
        (*t)->deleter(*t);
    *t = NULL;
}

/* What the network gave as caches are the next step's; the logits stay in made. */
static const float *step_growing(struct decoder *d, mcc_error *error)
{
    release(&d->made[d->logits]);
    if (d->api->run_dlpack(d->ctx, d->ins, d->made, error) != MCC_OK)
        return NULL;
    for (uint32_t k = 0; k < d->api->n_in; k++) {
        struct decoder_port *p = &d->in[k];
        if (p->output < 0 || (p->fixed && p->held))
            continue;
        release(&p->held);
        p->held = d->made[p->output];
        d->made[p->output] = NULL;
        p->tensor = p->held->dl_tensor;
    }
    for (uint32_t k = 0; k < d->api->n_out; k++)
        if ((int)k != d->logits)
            release(&d->made[k]);
    const DLTensor *logits = &d->made[d->logits]->dl_tensor;
    if (logits->shape[1] < 1 || logits->shape[2] != d->vocabulary)
        return fail(error, "the network gave no logits"), NULL;
    return (const float *)((const char *)logits->data + logits->byte_offset) + (logits->shape[1] - 1) * d->vocabulary;
}

const float *decoder_feed(struct decoder *d, const int64_t *ids, int64_t n, mcc_error *error)
{
    const float *logits;
    if (n < 1 || n > d->rows - d->n)
        return fail(error, "%lld tokens do not fit into a context of %lld", (long long)(d->n + n), (long long)d->rows),
               NULL;
    whole_set(d, d->ids, ids, n);
    whole_set(d, d->mask, d->ones, d->n + n);
    whole_set(d, d->positions, d->counted + d->n, n);
    for (uint32_t k = 0; k < d->api->n_in; k++) {
        if (d->in[k].output < 0 && !d->in[k].bound)
            return fail(error, "nothing is known of the network's input '%s'", d->api->in[k].name), NULL;
        d->ins[k] = &d->in[k].tensor;
    }
    logits = d->shared ? step_shared(d, n, error) : step_growing(d, error);
    d->n += logits ? n : 0;
    return logits;
}

const float *decoder_feed_all(struct decoder *d, const int64_t *ids, int64_t n, mcc_error *error)
{
    int64_t most = d->api->out[d->logits].dims[1].extent == 1 ? d->rows : PIECE;
    const float *logits = NULL;
    do {
        int64_t left = n - d->n;
        logits = decoder_feed(d, ids + d->n, left > most ? most : left, error);
    } while (logits && d->n < n);
    return logits;
}

int decoder_rows(const struct decoder *d)
{
    return d->shared && !d->windows && d->api->out[d->logits].dims[1].extent != 1;
}

const float *decoder_row(const struct decoder *d, int64_t i)
{
    return d->row + i * d->vocabulary;
}

void decoder_keep(struct decoder *d, int64_t n)
{
    d->n = n < d->n ? n : d->n;
}

void decoder_reset(struct decoder *d)
{
    d->n = 0;
    for (uint32_t k = 0; k < d->api->n_in; k++)
        if (d->in[k].held) {
            release(&d->in[k].held);
            d->in[k].shape[2] = 0;
            tensor_set(&d->in[k], &d->api->in[k], NULL);
        }
}

void decoder_close(struct decoder *d)
{
    for (uint32_t k = 0; d->lib && d->in && k < d->api->n_in; k++) {
        release(&d->in[k].held);
        if (d->shared && d->in[k].output >= 0)
            free(d->in[k].tensor.data);
        if (d->in[k].window)
            free(d->in[k].present.data);
    }
    for (uint32_t k = 0; d->lib && d->made && k < d->api->n_out; k++)
        release(&d->made[k]);
    if (d->ctx)
        d->api->ctx_free(d->ctx);
    mcc_unload(d->lib);
    free(d->in);
    free(d->ins);
    free(d->outs);
    free(d->made);
    free(d->counted);
    free(d->ones);
    free(d->row);
    *d = (struct decoder){0};
}
