/* Dictionaries of tensors as torch.save pickles them, protocol 2: what pickle.c reads. */
#include "frontend/pt2/pt2.h"

static const char ordered[] = "ccollections\nOrderedDict\n)R"; /* an empty one */

static void code(struct strbuf *out, const char *text)
{
    strbuf_append(out, text, strlen(text));
}

static void text_code(struct strbuf *out, const char *text)
{
    const uint32_t n = (uint32_t)strlen(text);
    code(out, "X");
    for (int i = 0; i < 4; i++)
        strbuf_append(out, &(uint8_t){(uint8_t)(n >> 8 * i)}, 1);
    code(out, text);
}

static void int_code(struct strbuf *out, int64_t n)
{
    strbuf_append(out, "\x8a\x08", 2);
    for (int i = 0; i < 8; i++)
        strbuf_append(out, &(uint8_t){(uint8_t)((uint64_t)n >> 8 * i)}, 1);
}

/* A tuple of {as_int}. */
static void tuple_code(struct strbuf *out, const struct json *list)
{
    int64_t n;
    code(out, "(");
    for (const struct json *e = json_first(list); e; e = e->next) {
        json_as_int(json_get(e, "as_int"), &n);
        int_code(out, n);
    }
    code(out, "t");
}

static int64_t count_of(const struct json *sizes)
{
    int64_t n, count = 1;
    for (const struct json *e = json_first(sizes); e; e = e->next) {
        json_as_int(json_get(e, "as_int"), &n);
        count *= n;
    }
    return count;
}

static void tensor_code(struct strbuf *out, const struct pt2_inside *inside, const char *path, const struct json *meta)
{
    int64_t type = 0, offset = 0;
    json_as_int(json_get(meta, "dtype"), &type);
    json_as_int(json_get(json_get(meta, "storage_offset"), "as_int"), &offset);
    const struct zip_record *r = zip_find(&inside->zip, arena_printf(out->arena, "%s%s", inside->root, path));
    code(out, "ctorch._utils\n_rebuild_tensor_v2\n((");
    text_code(out, "storage");
    code(out, arena_printf(out->arena, "ctorch\n%sStorage\n", pickle_storage(type)));
    text_code(out, path + strlen("data/"));
    text_code(out, "cpu");
    int_code(out, r ? (int64_t)r->size / elem_size(elem_by_torch(type)) : count_of(json_get(meta, "sizes")));
    code(out, "tQ");
    int_code(out, offset);
    tuple_code(out, json_get(meta, "sizes"));
    tuple_code(out, json_get(meta, "strides"));
    code(out, "\x89");
    code(out, ordered);
    code(out, "tR");
}

void pickle_put(struct strbuf *out, const struct pt2_inside *inside, const struct json *table)
{
    code(out, "\x80\x02");
    code(out, ordered);
    code(out, "(");
    for (const struct json *e = json_first(json_get(table, "config")); e; e = e->next) {
        const struct json *is_param = json_get(e, "is_param");
        const char *path = json_as_text(json_get(e, "path_name"));
        text_code(out, e->key);
        if (is_param->u.truth)
            code(out, "ctorch._utils\n_rebuild_parameter\n(");
        tensor_code(out, inside, path, json_get(e, "tensor_meta"));
        if (is_param->u.truth) {
            code(out, "\x88");
            code(out, ordered);
            code(out, "tR");
        }
    }
    code(out, "u.");
}
