/* A linked dynamic library becomes the artifact's file (macho.h): weights in place, note sealed, signed, whole or not
 * at all.
 *
 * The weights' segment is the last except for the linker's own, which has the tables that the loader reads: making it
 * longer moves those, by numbers in commands. Names of functions come last in them, and behind those the signature.
 * Whoever ships a library signs it anew, so the note's hash leaves out the signature and its length.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/container/bytes.h"
#include "codegen/container/macho.h"
#include "codegen/names.h"
#include "codegen/sink.h"
#include "ir/base/file.h"
#include "runtime/mcc_note.h"
#include "runtime/rt.h"

enum { PLACEHOLDER = 64, SIGNATURE_ALIGN = 16, PIECES_MAX = 16, SECTIONS_MAX = 256 };

struct image {
    const struct linked *l;
    unsigned char *data; /* the file without its weights and its signature */
    size_t size;
    uint64_t last, weights, symbols, order, name, signature; /* commands' places; 0: there is none */
    uint64_t pieces[PIECES_MAX];
    uint32_t n_pieces;
    uint64_t table, note, code; /* places of sections; bytes of the first segment */
    uint32_t n_sections;
    bool runs[SECTIONS_MAX]; /* has the section code? By number, from 1 on */
    uint64_t cut, limit; /* where the weights begin; where the signature does */
    unsigned char *digests; /* of the weights' pages */
};

static bool broken(struct image *im, const char *what)
{
    return error_internal(im->l->ctx, (src_id){0}, "the linked file is not as expected: %s", what);
}

/* ---- reading: the linker is ours, but its output is still a file: every offset is checked before it is used ---- */

static struct macho_segment segment_at(const struct image *im, uint64_t at)
{
    struct macho_segment s;
    memcpy(&s, im->data + at, sizeof s);
    return s;
}

static bool read_segment(struct image *im, uint64_t at, uint32_t bytes)
{
    if (bytes < sizeof(struct macho_segment))
        return false;
    const struct macho_segment s = segment_at(im, at);
    if (!bytes_inside(im->size, s.at, s.bytes) || s.n_sections > (bytes - sizeof s) / sizeof(struct macho_section))
        return false;
    if (macho_is_named(s.name, "__TEXT"))
        im->code = s.bytes;
    if (macho_is_named(s.name, "__LINKEDIT"))
        im->last = at;
    if (macho_is_named(s.name, MACHO_WEIGHTS_SEGMENT))
        im->weights = at;
    for (uint32_t i = 0; i < s.n_sections; i++) {
        struct macho_section section;
        memcpy(&section, im->data + at + sizeof s + i * sizeof section, sizeof section);
        if (++im->n_sections >= SECTIONS_MAX)
            return false;
        im->runs[im->n_sections] = section.flags & MACHO_CODE;
        bool filled = (section.flags & MACHO_TYPE_BITS) != MACHO_ZERO_FILLED;
        if (filled && !bytes_inside(im->size, section.at, section.size))
            return false;
        if (macho_is_named(section.name, MACHO_NOTE) && section.size == sizeof(struct mcc_note))
            im->note = section.at;
        if (macho_is_named(section.name, MACHO_TABLE) && section.size >= sizeof(struct mcc_rt_desc))
            im->table = section.at;
    }
    return true;
}

static bool read_command(struct image *im, uint64_t at, struct macho_command c)
{
    uint64_t *const known[] = {[MACHO_SYMBOLS] = &im->symbols,
                               [MACHO_ORDER] = &im->order,
                               [MACHO_NAME] = &im->name,
                               [MACHO_SIGNATURE] = &im->signature};
    static const uint8_t least[] = {[MACHO_SYMBOLS] = sizeof(struct macho_symbols),
                                    [MACHO_ORDER] = sizeof(struct macho_order),
                                    [MACHO_NAME] = 24,
                                    [MACHO_SIGNATURE] = sizeof(struct macho_piece)};
    if (c.kind == MACHO_SEGMENT)
        return read_segment(im, at, c.bytes);
    if (c.kind < COUNT_OF(known) && known[c.kind]) {
        *known[c.kind] = at;
        return c.bytes >= least[c.kind];
    }
    if (c.kind != MACHO_STARTS && c.kind != MACHO_DATA_IN_CODE && c.kind != MACHO_EXPORTS && c.kind != MACHO_FIXUPS)
        return true;
    if (im->n_pieces == PIECES_MAX || c.bytes < sizeof(struct macho_piece))
        return false;
    im->pieces[im->n_pieces++] = at;
    return true;
}

static bool read_commands(struct image *im)
{
    struct macho_head head;
    uint64_t at = sizeof head;
    if (im->size < sizeof head)
        return broken(im, "no Mach-O file");
    memcpy(&head, im->data, sizeof head);
    if (head.magic != MACHO_MAGIC || head.type != MACHO_LIBRARY || !bytes_inside(im->size, at, head.commands_bytes))
        return broken(im, "no Mach-O library");
    for (uint64_t end = at + head.commands_bytes; at < end;) {
        struct macho_command c;
        if (end - at < sizeof c)
            return broken(im, "commands");
        memcpy(&c, im->data + at, sizeof c);
        if (c.bytes < sizeof c || c.bytes % 8 || c.bytes > end - at || !read_command(im, at, c))
            return broken(im, "a command");
        at += c.bytes;
    }
    return true;
}

/* The weights' segment ends where the linker's begins, and what is patched lies before both. */
static bool check_places(struct image *im, bool has_weights)
{
    if (!im->last || !im->symbols || !im->order || !im->name || !im->signature)
        return broken(im, "a command is missing");
    if (has_weights != (im->weights != 0))
        return broken(im, "weights");
    const struct macho_segment last = segment_at(im, im->last);
    im->cut = last.at;
    if (last.at % MACHO_SIGNED_PAGE || last.at + last.bytes != im->size)
        return broken(im, "the last segment");
    if (im->weights) {
        const struct macho_segment s = segment_at(im, im->weights);
        struct macho_section section;
        im->cut = s.at;
        if (s.n_sections != 1 || s.at % MACHO_SIGNED_PAGE || s.at + s.bytes != last.at ||
            s.address + s.room != last.address || s.bytes < PLACEHOLDER)
            return broken(im, "the weights' segment");
        memcpy(&section, im->data + im->weights + sizeof s, sizeof section);
        if (section.at != s.at || section.size != PLACEHOLDER)
            return broken(im, "placeholder");
    }
    if (!im->note || im->note % 8 || im->note + sizeof(struct mcc_note) > im->cut)
        return broken(im, "note");
    if (!im->table || im->table % 8 || im->table + sizeof(struct mcc_rt_desc) > im->cut)
        return broken(im, "table");
    return true;
}

/* ---- names ---- */

/* The names of symbols come last: what follows them is the signature, which is made anew. */
static bool name_functions(struct image *im)
{
    struct macho_symbols table;
    memcpy(&table, im->data + im->symbols, sizeof table);
    if (!bytes_inside(im->size, table.at, (uint64_t)table.n * sizeof(struct macho_symbol)) ||
        !bytes_inside(im->size, table.text_at, table.text_bytes) || !table.text_bytes || table.text_at < im->cut ||
        im->data[table.text_at + (uint64_t)table.text_bytes - 1] != 0 ||
        table.at + (uint64_t)table.n * sizeof(struct macho_symbol) > table.text_at)
        return broken(im, "symbol table");
    for (uint32_t i = 0; i < im->n_pieces; i++) {
        struct macho_piece p;
        memcpy(&p, im->data + im->pieces[i], sizeof p);
        if (p.at + (uint64_t)p.bytes > table.text_at)
            return broken(im, "something after the names");
    }
    struct strbuf out = strbuf_of(im->l->arena), names = strbuf_of(im->l->arena);
    strbuf_append(&names, " ", 2);
    strbuf_append(&out, im->data, table.text_at);
    for (uint32_t i = 0; i < table.n; i++) {
        struct macho_symbol s;
        uint64_t at = table.at + (uint64_t)i * sizeof s;
        memcpy(&s, im->data + at, sizeof s);
        if (s.name >= table.text_bytes)
            return broken(im, "a symbol's name");
        const char *name = (const char *)im->data + table.text_at + s.name;
        s.name = (uint32_t)names.n;
        bool code = !(s.type & MACHO_STAB) && (s.type & MACHO_TYPE) == MACHO_TYPE && im->runs[s.section];
        strbuf_printf(&names, "%s%s", code && *name == '_' ? "_" : "",
                      code && *name == '_' ? names_find(im->l->names, name + 1) : name);
        strbuf_append(&names, "", 1);
        memcpy(out.data + at, &s, sizeof s);
    }
    if (names.n > UINT32_MAX / 2)
        return broken(im, "names");
    table.text_bytes = (uint32_t)names.n;
    strbuf_append(&out, names.data, names.n);
    put_aligned(&out, SIGNATURE_ALIGN);
    im->data = (unsigned char *)out.data;
    im->size = out.n;
    memcpy(im->data + im->symbols, &table, sizeof table);
    return true;
}

/* What programs that are linked with the library ask for: the file's name, where their rpath says. */
static bool name_library(struct image *im)
{
    struct macho_command c;
    uint32_t at;
    const char *name = arena_printf(im->l->arena, "@rpath/%s", path_name(im->l->path));
    memcpy(&c, im->data + im->name, sizeof c);
    memcpy(&at, im->data + im->name + sizeof c, sizeof at);
    if (at > c.bytes || strlen(name) >= c.bytes - at)
        return broken(im, "the library's name");
    memset(im->data + im->name + at, 0, c.bytes - at);
    memcpy(im->data + im->name + at, name, strlen(name));
    return true;
}

/* ---- places ---- */

static void move_word(struct image *im, uint64_t at, uint64_t by)
{
    uint32_t x;
    memcpy(&x, im->data + at, sizeof x);
    x += (uint32_t)by;
    memcpy(im->data + at, &x, sizeof x);
}

static void move_tables(struct image *im, uint64_t by)
{
    struct macho_order order;
    for (uint32_t i = 0; i < im->n_pieces; i++)
        move_word(im, im->pieces[i] + offsetof(struct macho_piece, at), by);
    move_word(im, im->symbols + offsetof(struct macho_symbols, at), by);
    move_word(im, im->symbols + offsetof(struct macho_symbols, text_at), by);
    memcpy(&order, im->data + im->order, sizeof order);
    for (size_t i = 0; i < COUNT_OF(order.rest); i += 2)
        order.rest[i] += order.rest[i + 1] ? (uint32_t)by : 0;
    memcpy(im->data + im->order, &order, sizeof order);
}

/* Makes the weights' segment as long as they are. Then im->data is head, padding, tail. */
static void grow(struct image *im, uint64_t size)
{
    struct macho_segment s = segment_at(im, im->weights), last = segment_at(im, im->last);
    struct macho_section section;
    uint64_t room = round_to(size, MACHO_PAGE), pad = room - size, hole = s.bytes;
    memcpy(&section, im->data + im->weights + sizeof s, sizeof section);
    section.size = size;
    last.address = s.address + room;
    last.at = s.at + room;
    s.room = s.bytes = room;
    memcpy(im->data + im->weights, &s, sizeof s);
    memcpy(im->data + im->weights + sizeof s, &section, sizeof section);
    memcpy(im->data + im->last, &last, sizeof last);
    move_tables(im, room - hole);
    unsigned char *whole = arena_alloc(im->l->arena, im->size + pad);
    memcpy(whole, im->data, im->cut);
    memset(whole + im->cut, 0, pad);
    memcpy(whole + im->cut + pad, im->data + im->cut + hole, im->size - im->cut - hole);
    im->size += pad - hole;
    im->data = whole;
}

/* All places of the file, the signature's included. */
static bool place(struct image *im)
{
    uint64_t embedded = embedded_size(im->l->weights);
    im->limit = im->size + embedded; /* about as much */
    if (im->limit + macho_signature_bytes(im->limit) + 2 * MACHO_PAGE > UINT32_MAX)
        return error_limit(im->l->ctx, (src_id){0}, MACHO_TOO_LARGE);
    if (embedded)
        grow(im, embedded);
    im->limit = im->size + embedded;
    struct macho_segment last = segment_at(im, im->last);
    struct macho_piece signature = {.command = {MACHO_SIGNATURE, sizeof signature},
                                    .at = (uint32_t)im->limit,
                                    .bytes = (uint32_t)macho_signature_bytes(im->limit)};
    last.bytes = im->limit + signature.bytes - last.at;
    last.room = round_to(last.bytes, MACHO_PAGE);
    memcpy(im->data + im->last, &last, sizeof last);
    memcpy(im->data + im->signature, &signature, sizeof signature);
    return true;
}

/* ---- writing ---- */

/* The weights as they pass, in pages. */
struct paging {
    const struct weights_writer *from;
    bool (*put)(void *sink, const void *, size_t);
    void *sink;
    unsigned char *digests, page[MACHO_SIGNED_PAGE];
    size_t n; /* bytes of the page */
    uint64_t left; /* pages for which there is room */
};

static void page_end(struct paging *p, const void *page)
{
    if (!p->left) /* more than was announced: an error that the sink tells */
        return;
    sha256(page, MACHO_SIGNED_PAGE, p->digests);
    p->digests += MACHO_DIGEST;
    p->left--;
}

static bool put_paged(void *user, const void *data, size_t size)
{
    struct paging *p = user;
    const unsigned char *bytes = data;
    for (size_t at = 0, n; at < size; at += n) {
        n = size - at < MACHO_SIGNED_PAGE - p->n ? size - at : MACHO_SIGNED_PAGE - p->n;
        if (n == MACHO_SIGNED_PAGE) {
            page_end(p, bytes + at);
            continue;
        }
        memcpy(p->page + p->n, bytes + at, n);
        p->n = (p->n + n) % MACHO_SIGNED_PAGE;
        if (!p->n)
            page_end(p, p->page);
    }
    return p->put(p->sink, data, size);
}

static bool write_paged(void *user, bool (*put)(void *sink, const void *, size_t), void *sink)
{
    struct paging *p = user;
    p->put = put;
    p->sink = sink;
    bool ok = p->from->write(p->from->user, put_paged, p);
    memset(p->page + p->n, 0, sizeof p->page - p->n);
    if (p->n)
        page_end(p, p->page);
    return ok;
}

/* What writes the weights in pages. */
static struct weights_writer paged_weights(struct image *im)
{
    struct paging *p = NEW(im->l->arena, struct paging);
    struct weights_writer paged = *im->l->weights;
    p->from = im->l->weights;
    p->left = round_to(paged.size, MACHO_SIGNED_PAGE) / MACHO_SIGNED_PAGE;
    im->digests = p->digests = NEW_ARRAY(im->l->arena, unsigned char, p->left *MACHO_DIGEST);
    paged.user = p;
    paged.write = write_paged;
    return paged;
}

static uint64_t hash_without(struct image *im, const uint64_t *at, const uint32_t *bytes, uint32_t n)
{
    unsigned char kept[64], *end = kept;
    for (uint32_t i = 0; i < n; end += bytes[i], i++) {
        memcpy(end, im->data + at[i], bytes[i]);
        memset(im->data + at[i], 0, bytes[i]);
    }
    uint64_t hash = XXH64(im->data, im->size, 0);
    end = kept;
    for (uint32_t i = 0; i < n; end += bytes[i], i++)
        memcpy(im->data + at[i], end, bytes[i]);
    return hash;
}

/* Without what changes when the library is signed anew. */
static uint64_t hash_unsigned(void *user)
{
    struct image *im = user;
    const uint64_t open[] = {im->last + offsetof(struct macho_segment, room),
                             im->last + offsetof(struct macho_segment, bytes),
                             im->signature + offsetof(struct macho_piece, bytes)};
    static const uint32_t bytes[] = {8, 8, 4};
    return hash_without(im, open, bytes, COUNT_OF(open));
}

/* Pages of the weights are known; the others are those of im->data, which is complete. */
static struct span sign(void *user)
{
    struct image *im = user;
    uint64_t embedded = embedded_size(im->l->weights),
             pages = round_to(im->limit, MACHO_SIGNED_PAGE) / MACHO_SIGNED_PAGE;
    unsigned char *digests = NEW_ARRAY(im->l->arena, unsigned char, pages *MACHO_DIGEST);
    for (uint64_t i = 0; i < pages; i++) {
        uint64_t at = i * MACHO_SIGNED_PAGE, left = im->limit - at;
        unsigned char *to = digests + i * MACHO_DIGEST;
        if (at >= im->cut && at < im->cut + embedded)
            memcpy(to, im->digests + (at - im->cut) / MACHO_SIGNED_PAGE * MACHO_DIGEST, MACHO_DIGEST);
        else
            sha256(im->data + at - (at < im->cut ? 0 : embedded), left < MACHO_SIGNED_PAGE ? left : MACHO_SIGNED_PAGE,
                   to);
    }
    return macho_signature(im->l->arena, im->limit, im->code, digests);
}

bool macho_library(const struct linked *l)
{
    struct image im = {.l = l, .size = l->bytes.size};
    const bool embedded = embedded_size(l->weights) > 0;
    if (!note_fits(l))
        return false;
    im.data = arena_copy(l->arena, l->bytes.data, l->bytes.size);
    if (!read_commands(&im) || !check_places(&im, embedded) || !name_functions(&im) || !name_library(&im) ||
        !place(&im))
        return false;
    const struct weights_writer paged = embedded ? paged_weights(&im) : *l->weights;
    return library_put(&(struct library_file){.l = l,
                                              .data = im.data,
                                              .size = im.size,
                                              .cut = embedded ? im.cut : im.size,
                                              .desc = im.table,
                                              .note = im.note,
                                              .weights = &paged,
                                              .hash = hash_unsigned,
                                              .sign = sign,
                                              .user = &im});
}
