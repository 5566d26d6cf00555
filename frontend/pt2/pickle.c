/* Dictionaries of tensors that torch.save pickled, as PyTorch 2.8 and older write weights and constants.
 *
 * A pickle is a program for a machine with a stack and a memo. Only what makes dictionaries, tuples, numbers, texts and
 * tensors is understood: nothing is called, and a name that is not in the list of known ones is an error. The tensors
 * become entries as later versions write them in JSON (weights.c reads both).
 * Source: CPython's pickletools, protocols 2 to 5; PyTorch's torch/serialization.py.
 */
#include "frontend/pt2/pt2.h"

enum { ITEMS_MAX = 1 << 20, MEMO_MAX = 1 << 20, NAME_MAX_BYTES = 200 };
enum kind { ITEM_NONE, ITEM_MARK, ITEM_INT, ITEM_TEXT, ITEM_GLOBAL, ITEM_LIST, ITEM_DICT, ITEM_STORAGE, ITEM_TENSOR };

/* A tuple, list or dictionary (keys and values in turn) has children; so have a storage and a tensor, their arguments.
 * The number of a tensor: 1: it is a parameter. */
struct item {
    enum kind kind;
    int64_t i;
    const char *text;
    VEC(struct item *) list;
};

struct machine {
    struct pt2 *p;
    const char *what; /* the record, for messages */
    const uint8_t *at, *end;
    uint32_t n_items; /* that were put on the stack, also again */
    VEC(struct item *) stack;
    VEC(struct item *) memo;
};

#define refuse(m, ...) error_model((m)->p->ctx, (src_id){0}, __VA_ARGS__)

static struct item *item_new(struct machine *m, enum kind kind)
{
    struct item *item = NEW(&m->p->scratch, struct item);
    item->kind = kind;
    return item;
}

static bool push(struct machine *m, struct item *item)
{
    m->n_items++;
    VEC_PUSH(&m->p->scratch, &m->stack, item);
    return true;
}

static bool push_int(struct machine *m, int64_t i)
{
    struct item *item = item_new(m, ITEM_INT);
    item->i = i;
    return push(m, item);
}

static struct item *pop(struct machine *m)
{
    struct item *item = m->stack.n ? m->stack.data[--m->stack.n] : NULL;
    if (!item || item->kind == ITEM_MARK)
        refuse(m, "record '%s' is a pickle that takes more from its stack than there is", m->what);
    return item && item->kind != ITEM_MARK ? item : NULL;
}

/* The next n bytes, as an unsigned number where n <= 8. */
static const uint8_t *take(struct machine *m, uint64_t n, uint64_t *number)
{
    const uint8_t *bytes = m->at;
    if (n > (uint64_t)(m->end - m->at)) {
        refuse(m, "record '%s' is a pickle that ends within an instruction", m->what);
        return NULL;
    }
    m->at += n;
    *number = 0;
    for (uint64_t k = n < 8 ? n : 8; k-- > 0;)
        *number = *number << 8 | bytes[k];
    return bytes;
}

/* Items above the last mark become children of `to`. */
static bool gather(struct machine *m, struct item *to)
{
    uint32_t mark = m->stack.n;
    while (mark > 0 && m->stack.data[mark - 1]->kind != ITEM_MARK)
        mark--;
    if (!mark || !to)
        return refuse(m, "record '%s' is a pickle that looks for a mark that is not there", m->what);
    for (uint32_t i = mark; i < m->stack.n; i++)
        VEC_PUSH(&m->p->scratch, &to->list, m->stack.data[i]);
    m->stack.n = mark - 1;
    return true;
}

static bool tuple(struct machine *m, uint32_t n)
{
    struct item *t = item_new(m, ITEM_LIST);
    if (m->stack.n < n)
        return pop(m), refuse(m, "record '%s' is a pickle that makes a tuple of too little", m->what);
    for (uint32_t i = m->stack.n - n; i < m->stack.n; i++)
        VEC_PUSH(&m->p->scratch, &t->list, m->stack.data[i]);
    m->stack.n -= n;
    return push(m, t);
}

/* Into the container below the items: the n on top, or all from the last mark on (n 0). */
static bool put_items(struct machine *m, uint32_t n, enum kind kind)
{
    uint32_t first = m->stack.n, at = 0;
    while (first > 0 && m->stack.n - first < (n ? n : m->stack.n) && m->stack.data[first - 1]->kind != ITEM_MARK)
        first--;
    if (n ? m->stack.n - first < n : first == 0)
        return refuse(m, "record '%s' is a pickle that takes more from its stack than there is", m->what);
    at = n ? first : first - 1;
    struct item *container = at ? m->stack.data[at - 1] : NULL;
    if (!container || container->kind != kind || (kind == ITEM_DICT && (m->stack.n - first) % 2))
        return refuse(m, "record '%s' is a pickle that fills what is not a container", m->what);
    for (uint32_t i = first; i < m->stack.n; i++)
        VEC_PUSH(&m->p->scratch, &container->list, m->stack.data[i]);
    m->stack.n = at;
    return true;
}

static const char *line(struct machine *m)
{
    const uint8_t *begin = m->at, *end = memchr(begin, '\n', (size_t)(m->end - begin));
    if (!end || end - begin > NAME_MAX_BYTES || memchr(begin, 0, (size_t)(end - begin))) {
        refuse(m, "record '%s' is a pickle with a name that is damaged", m->what);
        return NULL;
    }
    m->at = end + 1;
    return arena_strndup(&m->p->scratch, (const char *)begin, (size_t)(end - begin));
}

const char *pickle_storage(int64_t type)
{
    static const char *const names[] = {"Byte",          "Char",  "Short",   "Int",         "Long",
                                        "Half",          "Float", "Double",  "ComplexHalf", "ComplexFloat",
                                        "ComplexDouble", "Bool",  "BFloat16"};
    return type > 0 && type <= (int64_t)COUNT_OF(names) ? names[type - 1] : NULL;
}

/* PyTorch's number of the element type of torch.FloatStorage and its kin; 0: no such class. */
static int64_t storage_type(const char *name)
{
    const char *kind;
    for (int64_t i = 1; strncmp(name, "torch.", 6) == 0 && (kind = pickle_storage(i)); i++) {
        size_t n = strlen(kind);
        if (strncmp(name + 6, kind, n) == 0 && strcmp(name + 6 + n, "Storage") == 0)
            return i;
    }
    return 0;
}

static bool global(struct machine *m)
{
    static const char *const known[] = {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2",
                                        "torch._utils._rebuild_parameter"};
    const char *module = line(m), *name = module ? line(m) : NULL;
    if (!name)
        return false;
    struct item *item = item_new(m, ITEM_GLOBAL);
    item->text = arena_printf(&m->p->scratch, "%s.%s", module, name);
    item->i = storage_type(item->text);
    bool fine = item->i || ROW_NAMED(known, COUNT_OF(known), item->text);
    return fine ? push(m, item)
                : refuse(m,
                         "record '%s' is a pickle that asks for '%.*s', which is not among what tensors need: load "
                         "the program and save it again with PyTorch 2.9 or later",
                         m->what, NAME_MAX_BYTES, item->text);
}

static bool are(const struct item *list, const char *kinds)
{
    for (uint32_t i = 0; kinds[i]; i++) {
        static const char letters[] = "_mitglds#";
        if (!list || i >= list->list.n || (kinds[i] != '?' && letters[list->list.data[i]->kind] != kinds[i]))
            return false;
    }
    return list != NULL;
}

/* ("storage", class, key, place, count) */
static bool persistent(struct machine *m)
{
    struct item *id = pop(m), *storage;
    if (!id)
        return false;
    if (id->kind != ITEM_LIST || !are(id, "tgt?i") || strcmp(id->list.data[0]->text, "storage") != 0 ||
        !id->list.data[1]->i)
        return refuse(m, "record '%s' is a pickle that refers to what is not a storage of a tensor", m->what);
    storage = item_new(m, ITEM_STORAGE);
    storage->text = id->list.data[2]->text;
    storage->i = id->list.data[1]->i;
    return push(m, storage);
}

/* What a known name makes of its arguments. */
static bool reduce(struct machine *m)
{
    struct item *args = pop(m), *callee = args ? pop(m) : NULL, *made;
    if (!callee)
        return false;
    const char *name = callee->kind == ITEM_GLOBAL ? callee->text : "";
    if (args->kind == ITEM_LIST && strcmp(name, "collections.OrderedDict") == 0 && !args->list.n)
        return push(m, item_new(m, ITEM_DICT));
    if (args->kind == ITEM_LIST && strcmp(name, "torch._utils._rebuild_parameter") == 0 && are(args, "#")) {
        args->list.data[0]->i = 1;
        return push(m, args->list.data[0]);
    }
    if (args->kind != ITEM_LIST || strcmp(name, "torch._utils._rebuild_tensor_v2") != 0 || !are(args, "sill"))
        return refuse(m, "record '%s' is a pickle that makes what is not a tensor", m->what);
    const struct item *bits = args->list.n > 6 ? args->list.data[6] : NULL;
    if (bits && bits->kind != ITEM_NONE && (bits->kind != ITEM_DICT || bits->list.n))
        return refuse(m,
                      "record '%s' is a pickle with a tensor that is the negative or conjugate of its elements: give "
                      "the module resolve_neg() or resolve_conj() of it",
                      m->what);
    made = item_new(m, ITEM_TENSOR);
    made->list.data = args->list.data;
    made->list.n = args->list.n;
    return push(m, made);
}

static bool memo_put(struct machine *m, uint64_t k)
{
    if (!m->stack.n || k >= MEMO_MAX)
        return refuse(m, "record '%s' is a pickle with a memo that is too large, or of nothing", m->what);
    while (m->memo.n <= k)
        VEC_PUSH(&m->p->scratch, &m->memo, (struct item *)NULL);
    m->memo.data[k] = m->stack.data[m->stack.n - 1];
    return true;
}

static bool memo_get(struct machine *m, uint64_t k)
{
    if (k >= m->memo.n || !m->memo.data[k])
        return refuse(m, "record '%s' is a pickle that reads its memo where nothing is", m->what);
    return push(m, m->memo.data[k]);
}

static bool text(struct machine *m, uint64_t n)
{
    uint64_t number;
    const uint8_t *bytes = take(m, n, &number);
    struct item *item = item_new(m, ITEM_TEXT);
    item->text = bytes ? arena_strndup(&m->p->scratch, (const char *)bytes, n) : "";
    return bytes &&
           (!memchr(bytes, 0, n) || refuse(m, "record '%s' is a pickle with a text that holds a NUL", m->what)) &&
           push(m, item);
}

/* One instruction; *done at the last. */
static bool step(struct machine *m, bool *done)
{
    uint64_t op, n;
    if (!take(m, 1, &op))
        return false;
    switch (op) {
    case 0x80:
        return take(m, 1, &n) &&
               ((n >= 2 && n <= 5) || refuse(m, "record '%s': pickle protocol %u", m->what, (unsigned)n));
    case '.': *done = true; return true;
    case '(': return push(m, item_new(m, ITEM_MARK));
    case ')': return push(m, item_new(m, ITEM_LIST));
    case ']': return push(m, item_new(m, ITEM_LIST));
    case '}': return push(m, item_new(m, ITEM_DICT));
    case 'N': return push(m, item_new(m, ITEM_NONE));
    case 0x88: return push_int(m, 1);
    case 0x89: return push_int(m, 0);
    case 'K': return take(m, 1, &n) && push_int(m, (int64_t)n);
    case 'M': return take(m, 2, &n) && push_int(m, (int64_t)n);
    case 'J': return take(m, 4, &n) && push_int(m, (int32_t)(uint32_t)n);
    case 0x8a: { /* as many bytes as the first says, two's complement */
        uint64_t size;
        if (!take(m, 1, &size) || size > 8 || !take(m, size, &n))
            return refuse(m, "record '%s' is a pickle with a number that does not fit into 64 bits", m->what);
        if (size && size < 8 && n >> (8 * size - 1))
            n |= ~(uint64_t)0 << (8 * size);
        return push_int(m, (int64_t)n);
    }
    case 'G': return take(m, 8, &n) && push(m, item_new(m, ITEM_NONE)); /* no tensor needs it */
    case 'X': return take(m, 4, &n) && text(m, n);
    case 'c': return global(m);
    case 'q': return take(m, 1, &n) && memo_put(m, n);
    case 'r': return take(m, 4, &n) && memo_put(m, n);
    case 'h': return take(m, 1, &n) && memo_get(m, n);
    case 'j': return take(m, 4, &n) && memo_get(m, n);
    case 't': {
        struct item *t = item_new(m, ITEM_LIST);
        return gather(m, t) && push(m, t);
    }
    case 0x85: return tuple(m, 1);
    case 0x86: return tuple(m, 2);
    case 0x87: return tuple(m, 3);
    case 'a': return put_items(m, 1, ITEM_LIST);
    case 'e': return put_items(m, 0, ITEM_LIST);
    case 's': return put_items(m, 2, ITEM_DICT);
    case 'u': return put_items(m, 0, ITEM_DICT);
    case 'Q': return persistent(m);
    case 'R': return reduce(m);
    case 'b': return pop(m) && m->stack.n; /* attributes beside the elements */
    default:
        return refuse(m, "record '%s' is a pickle with instruction %u, which tensors do not need", m->what,
                      (unsigned)op);
    }
}

/* ---- entries as JSON ------------------------------------------------------------------------------------------- */

static struct json *member(struct pt2 *p, struct json *parent, const char *key, enum json_kind kind)
{
    struct json *child = NEW(&p->scratch, struct json), **last = &parent->u.first;
    while (*last)
        last = &(*last)->next;
    *last = child;
    *child = (struct json){.kind = kind, .key = key};
    parent->n++;
    return child;
}

static void put_int(struct pt2 *p, struct json *parent, const char *key, int64_t i)
{
    member(p, parent, key, JSON_INT)->u.i = i;
}

/* A list of {as_int}; false: it holds what is not an integer. */
static bool put_ints(struct pt2 *p, struct json *parent, const char *key, const struct item *list)
{
    struct json *to = member(p, parent, key, JSON_LIST);
    for (uint32_t i = 0; i < list->list.n; i++) {
        if (list->list.data[i]->kind != ITEM_INT || i > RANK_MAX)
            return false;
        put_int(p, member(p, to, NULL, JSON_OBJECT), "as_int", list->list.data[i]->i);
    }
    return true;
}

static const struct json *entry(struct machine *m, const struct item *tensor, const char *name)
{
    struct pt2 *p = m->p;
    struct json *e = NEW(&p->scratch, struct json), *meta;
    const struct item *storage = tensor->list.data[0];
    *e = (struct json){.kind = JSON_OBJECT, .key = name};
    member(p, e, "path_name", JSON_TEXT)->u.text = arena_printf(&p->scratch, "data/%s", storage->text);
    member(p, e, "is_param", JSON_BOOL)->u.truth = tensor->i;
    meta = member(p, e, "tensor_meta", JSON_OBJECT);
    put_int(p, meta, "dtype", storage->i);
    put_int(p, member(p, meta, "storage_offset", JSON_OBJECT), "as_int", tensor->list.data[1]->i);
    if (put_ints(p, meta, "sizes", tensor->list.data[2]) && put_ints(p, meta, "strides", tensor->list.data[3]))
        return e;
    refuse(m, "record '%s': tensor '%s' has sizes or strides that are no integers, or too many", m->what, name);
    return NULL;
}

/* The archive within the record: *inside, with its folder. */
static bool inside_open(struct pt2 *p, const char *record, struct pt2_inside *inside)
{
    struct span bytes, order;
    if (!pt2_record(p, record, &bytes))
        return false;
    inside->zip = (struct zip){.ctx = p->ctx,
                               .what = arena_printf(&p->scratch, "record '%s'", record),
                               .data = (uint8_t *)(uintptr_t)bytes.data,
                               .size = bytes.size,
                               .inflate_left = &p->inflate_left};
    if (!zip_open(&inside->zip, &p->scratch))
        return false;
    const char *first = inside->zip.n ? inside->zip.records[0].name : "", *slash = strchr(first, '/');
    inside->root = arena_strndup(&p->scratch, first, slash ? (size_t)(slash - first + 1) : 0);
    struct zip_record *r = zip_find(&inside->zip, arena_printf(&p->scratch, "%sbyteorder", inside->root));
    return !r || (zip_read(&inside->zip, r, &order) &&
                  ((order.size == 6 && memcmp(order.data, "little", 6) == 0) ||
                   pt2_refuse(
                       p, "record '%s' is not of little-endian byte order: save the program on a little-endian machine",
                       record)));
}

bool pickle_import(struct pt2 *p, const char *record, struct pt2_inside *inside, struct names *table)
{
    struct machine m = {.p = p, .what = record};
    struct span bytes;
    bool done = false;
    if (!inside_open(p, record, inside))
        return false;
    struct zip_record *r = zip_find(&inside->zip, arena_printf(&p->scratch, "%sdata.pkl", inside->root));
    if (!r)
        return refuse(&m, "record '%s' has no data.pkl: save the program again", record);
    if (!zip_read(&inside->zip, r, &bytes))
        return false;
    m.at = bytes.data;
    m.end = m.at + bytes.size;
    while (!done) {
        if (m.n_items > ITEMS_MAX)
            return error_limit(p->ctx, (src_id){0}, "record '%s' is a pickle of more than %d things", record,
                               ITEMS_MAX);
        if (!step(&m, &done))
            return p->ctx->n_errors ? false : refuse(&m, "record '%s' is a damaged pickle", record);
    }
    struct item *top = pop(&m);
    if (!top || top->kind != ITEM_DICT)
        return top ? refuse(&m, "record '%s' is not a dictionary of tensors", record) : false;
    for (uint32_t i = 0; i + 1 < top->list.n; i += 2) {
        const struct item *key = top->list.data[i], *value = top->list.data[i + 1];
        if (key->kind != ITEM_TEXT || value->kind != ITEM_TENSOR)
            continue; /* an object that nobody may use */
        const struct json *e = entry(&m, value, key->text);
        if (!e)
            return false;
        VEC_PUSH(&p->scratch, &p->entries, e);
        state_path(p, table == &p->constants, e);
        name_bind(table, key->text, (value_id){p->entries.n - 1}, 0);
    }
    return true;
}
