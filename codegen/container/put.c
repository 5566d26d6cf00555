/* What writing an artifact's file has in common (container.h): the sidecar, the note. */
#include "codegen/container/container.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/sidecar.h"
#include "codegen/sink.h"
#include "runtime/mcc_note.h"
#include "runtime/rt.h"

uint64_t embedded_size(const struct weights_writer *w)
{
    return w->sidecar ? 0 : w->size;
}

struct putting {
    const struct linked *l;
    struct mcc_rt_desc *desc;
    struct mcc_note *note;
    bool (*body)(void *user, struct sink *);
    void *user;
    struct sink *artifact; /* with a sidecar: the artifact, while the sidecar is being written */
};

/* The artifact is complete and on the disk before the sidecar takes its name: all that can fail then is a rename. */
static bool put_sidecar(void *user, struct sink *side)
{
    struct putting *p = user;
    if (!sidecar_put(side, p->l->arena, p->l->weights, &p->desc->weights_hash, &p->desc->sidecar_head_hash))
        return false;
    if (p->note)
        p->note->sidecar_size = side->written;
    return p->body(p->user, p->artifact) && sink_sync(p->artifact);
}

static bool put_artifact(void *user, struct sink *s)
{
    struct putting *p = user;
    const struct weights_writer *w = p->l->weights;
    if (!w->size || !w->sidecar)
        return p->body(p->user, s);
    p->artifact = s;
    return sink_file(p->l->ctx, p->l->arena, w->sidecar, put_sidecar, p);
}

bool artifact_put(const struct linked *l, struct mcc_rt_desc *desc, struct mcc_note *note,
                  bool (*body)(void *user, struct sink *), void *user)
{
    struct putting p = {.l = l, .desc = desc, .note = note, .body = body, .user = user};
    return sink_file(l->ctx, l->arena, l->path, put_artifact, &p);
}

bool note_fits(const struct linked *l)
{
    return strlen(l->query) < sizeof((struct mcc_note *)0)->query ||
           error_usage(l->ctx, "'prefix' is too long for the names that it begins; give a shorter one");
}

/* All but the hash, which is that of a file with zeros there. */
static void note_fill(struct mcc_note *note, const struct linked *l, uint64_t file_size, uint64_t weights_offset)
{
    note->sealed = 1;
    note->file_size = file_size;
    note->weights_offset = weights_offset;
    note->weights_size = embedded_size(l->weights);
    note->weights_padding = l->weights->padding;
    memset(note->query, 0, sizeof note->query);
    memcpy(note->query, l->query, strlen(l->query));
    note->hash = 0;
}

static struct mcc_rt_desc *desc_of(const struct library_file *f)
{
    return (struct mcc_rt_desc *)(void *)(f->data + f->desc);
}

static struct mcc_note *note_of(const struct library_file *f)
{
    return (struct mcc_note *)(void *)(f->data + f->note);
}

static bool write_library(void *user, struct sink *s)
{
    struct library_file *f = user;
    const struct weights_writer *w = f->l->weights;
    struct mcc_rt_desc *desc = desc_of(f);
    struct mcc_note *note = note_of(f);
    const bool embedded = embedded_size(w) > 0;
    if (!sink_put(s, f->data, f->cut) ||
        (embedded && !sink_weights(s, f->weights ? f->weights : w, &desc->weights_hash)) ||
        !sink_put(s, f->data + f->cut, f->size - f->cut))
        return false;
    note_fill(note, f->l, s->written, embedded ? f->cut : s->written);
    note->hash = f->hash ? f->hash(f->user) : XXH64(f->data, f->size, 0);
    const struct span signature = f->sign ? f->sign(f->user) : (struct span){"", 0};
    return sink_put(s, signature.data, signature.size) && sink_fits(s, w->sidecar ? w->size : 0) &&
           sink_patch(s, desc, sizeof *desc, f->desc) && sink_patch(s, note, sizeof *note, f->note);
}

bool library_put(struct library_file *f)
{
    return artifact_put(f->l, desc_of(f), note_of(f), write_library, f);
}
