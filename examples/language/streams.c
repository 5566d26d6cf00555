/* Runs over some of the slots: tensors that begin at the first of them, with so many sequences. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "streams.h"

static int fail(mcc_error *error, const char *text)
{
    error->code = MCC_E_ARG;
    snprintf(error->text, sizeof error->text, "%s", text);
    return 0;
}

int streams_open(struct streams *s, mcc_lib *lib, const struct decoder_names *names, int64_t rows, int64_t slots,
                 mcc_error *error)
{
    struct decoder *d = &s->decoder;
    *s = (struct streams){0};
    if (!decoder_new(d, lib, names, rows, slots, error))
        return 0;
    int ok = d->shared && !d->windows && d->mask >= 0;
    uint32_t caches = 0;
    for (uint32_t k = 0; k < d->api->n_in; k++) {
        int known = (int)k == d->ids || (int)k == d->mask || (int)k == d->positions || d->in[k].output >= 0 ||
                    d->in[k].adapts;
        ok &= known && (d->in[k].output < 0 || d->in[k].room == 0);
        caches += d->in[k].output >= 0;
    }
    ok &= caches + 1 == d->api->n_out;
    if (!ok)
        fail(error, "the network's caches are not of the kind that streams share: GroupQueryAttention, with a mask");
    s->of = calloc((size_t)slots, sizeof *s->of);
    s->given = calloc((size_t)slots, sizeof *s->given);
    s->mask = calloc((size_t)(slots * d->rows), sizeof *s->mask);
    s->places = calloc((size_t)(slots + d->rows), sizeof *s->places);
    s->logits = calloc((size_t)slots * (size_t)d->vocabulary, sizeof *s->logits);
    if (ok && !(s->of && s->given && s->mask && s->places && s->logits))
        ok = fail(error, "no memory for streams");
    if (!ok)
        streams_close(s);
    return ok;
}

void streams_close(struct streams *s)
{
    if (s->decoder.lib)
        decoder_close(&s->decoder);
    free(s->of);
    free(s->given);
    free(s->mask);
    free(s->places);
    free(s->logits);
    *s = (struct streams){0};
}

static size_t element(const struct decoder_port *p)
{
    return (p->tensor.dtype.bits + 7u) / 8;
}

/* The stream in slot `from` is in slot `to` from now on. */
static void move(struct streams *s, int64_t from, int64_t to)
{
    struct decoder *d = &s->decoder;
    for (uint32_t k = 0; from != to && k < d->api->n_in; k++) {
        const struct decoder_port *p = &d->in[k];
        if (p->output < 0)
            continue;
        size_t head = (size_t)p->strides[1] * element(p), slot = (size_t)p->strides[0] * element(p);
        char *there = (char *)p->tensor.data + (size_t)to * slot, *here = (char *)p->tensor.data + (size_t)from * slot;
        for (int64_t h = 0; h < p->shape[1]; h++)
            memcpy(there + (size_t)h * head, here + (size_t)h * head,
                   (size_t)(s->of[from].held * p->shape[3]) * element(p));
    }
    s->of[to] = s->of[from];
}

/* Streams of one adapter are a group: from where, and up to where, that of stream i. */
static int64_t group_begin(const struct streams *s, int64_t i)
{
    while (i > 0 && s->of[i - 1].adapter == s->of[i].adapter)
        i--;
    return i;
}

static int64_t group_end(const struct streams *s, int64_t i)
{
    const struct adapter *adapter = s->of[i].adapter;
    while (i < s->n && s->of[i].adapter == adapter)
        i++;
    return i;
}

/* At the end of its group, or of all: of each group after that, the first stream becomes the last one. */
void streams_add(struct streams *s, const struct adapter *adapter, void *user)
{
    int64_t at = s->n, hole = s->n;
    while (at > 0 && s->of[at - 1].adapter != adapter)
        at = group_begin(s, at - 1);
    at = at > 0 ? at : s->n;
    while (hole > at) {
        int64_t first = group_begin(s, hole - 1);
        move(s, first, hole);
        hole = first;
    }
    s->of[at] = (struct stream){0, adapter, user};
    s->n++;
}

/* The last stream of its group takes its place, that of the next group the place of this one, and so on. */
void streams_remove(struct streams *s, int64_t stream)
{
    while (stream + 1 < s->n) {
        int64_t last = group_end(s, stream + 1) - 1;
        move(s, last, stream);
        stream = last;
    }
    s->n--;
}

static void whole(struct decoder *d, int k, int64_t count, int64_t n, const int64_t *data)
{
    struct decoder_port *p = &d->in[k];
    p->shape[0] = count;
    p->shape[1] = n;
    p->tensor = (DLTensor){(void *)data, {kDLCPU, 0}, 2, d->api->in[k].dtype, p->shape, NULL, 0};
    p->bound = 1;
}

/* The caches of `count` slots from `first` on. */
static void slots_of(struct decoder *d, int64_t first, int64_t count)
{
    for (uint32_t k = 0; k < d->api->n_in; k++) {
        struct decoder_port *p = &d->in[k];
        if (p->output < 0)
            continue;
        p->shape[0] = p->present_shape[0] = count;
        p->tensor.byte_offset = p->present.byte_offset = (uint64_t)first * (uint64_t)p->strides[0] * element(p);
        d->outs[p->output] = &p->present;
    }
}

/* n tokens for each of `count` streams of one adapter. Logits of the last ones go to those streams' rows. */
static int run(struct streams *s, int64_t first, int64_t count, const int64_t *ids, int64_t n, mcc_error *error)
{
    struct decoder *d = &s->decoder;
    const mcc_port *port = &d->api->out[d->logits];
    int64_t longest = 0, rows = port->dims[1].extent == 1 ? 1 : n, shape[] = {count, rows, d->vocabulary};
    float *own = s->logits + first * d->vocabulary, *out = own;
    for (int64_t i = 0; i < count; i++)
        longest = s->of[first + i].held + n > longest ? s->of[first + i].held + n : longest;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t t = 0; t < longest; t++)
            s->mask[i * longest + t] = t < s->of[first + i].held + n;
        for (int64_t t = 0; t < n; t++)
            s->places[i * n + t] = s->of[first + i].held + t;
    }
    if (rows > 1 && !(out = malloc((size_t)(count * rows * d->vocabulary) * sizeof *out)))
        return fail(error, "no memory for logits");
    whole(d, d->ids, count, n, ids);
    whole(d, d->mask, count, longest, s->mask);
    if (d->positions >= 0)
        whole(d, d->positions, count, n, s->places);
    slots_of(d, first, count);
    decoder_adapt(d, s->of[first].adapter);
    DLTensor logits = {out, {kDLCPU, 0}, 3, port->dtype, shape, NULL, 0};
    d->outs[d->logits] = &logits;
    for (uint32_t k = 0; k < d->api->n_in; k++)
        d->ins[k] = &d->in[k].tensor;
    int ok = d->api->run(d->ctx, d->ins, d->outs, error) == MCC_OK;
    for (int64_t i = 0; ok && rows > 1 && i < count; i++)
        memcpy(own + i * d->vocabulary, out + ((i + 1) * rows - 1) * d->vocabulary,
               (size_t)d->vocabulary * sizeof *out);
    if (out != own)
        free(out);
    return ok;
}

const float *streams_feed(struct streams *s, int64_t stream, const int64_t *ids, int64_t n, mcc_error *error)
{
    if (n < 1 || n > s->decoder.rows - s->of[stream].held)
        return fail(error, "more tokens than the context has"), NULL;
    if (!run(s, stream, 1, ids, n, error))
        return NULL;
    s->of[stream].held += n;
    return s->logits + stream * s->decoder.vocabulary;
}

/* A stream without a token gets one that the next one of it overwrites in its caches. */
const float *streams_step(struct streams *s, const int64_t *ids, mcc_error *error)
{
    int64_t *given = s->given;
    for (int64_t i = 0; i < s->n; i++) {
        given[i] = ids[i] < 0 ? 0 : ids[i];
        if (s->of[i].held >= s->decoder.rows)
            return fail(error, "more tokens than the context has"), NULL;
    }
    for (int64_t first = 0, end; first < s->n; first = end) {
        int any = 0;
        end = group_end(s, first);
        for (int64_t i = first; i < end; i++)
            any |= ids[i] >= 0;
        if (any && !run(s, first, end - first, given + first, 1, error))
            return NULL;
    }
    for (int64_t i = 0; i < s->n; i++)
        s->of[i].held += ids[i] >= 0;
    return s->logits;
}
