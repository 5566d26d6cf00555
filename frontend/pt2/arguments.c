/* Arguments of a node of the file -> operands and attributes, by the operator's schema.
 *
 * Operand i of a node is argument i, where that is a tensor or a number that the run computes; it is omitted ({0})
 * where the argument is known, and then an attribute of the argument's name holds it. Items of lists of tensors or
 * numbers of the run stand after them: the attribute "lists" has three numbers for each such list: argument, first
 * operand, length. An operator without a schema has its arguments in the file's order, for the message that refuses it.
 */
#include "frontend/pt2/arguments.h"

/* The value of a name, which a union of the file holds. */
static value_id named(struct pending *n, const struct json *name, uint32_t *index)
{
    const char *text = json_as_text(name);
    if (!text) {
        refuse(n, "an operand has no name");
        return (value_id){0};
    }
    value_id v = value_now(n->p, text, n->src, index);
    n->ok = n->ok && v.i;
    return v;
}

static value_id constant_int(struct pending *n, int64_t i)
{
    return pt2_constant(n->p, ELEM_I64, NULL, 0, arena_copy(&n->p->ctx->session, &i, sizeof i), "");
}

/* An item of a list that holds values: a tensor, a number of the run, a known one, or none. */
static value_id item(struct pending *n, const struct json *e)
{
    const struct json *u = json_only(e);
    uint32_t index;
    int64_t i;
    if (json_get(e, "name")) {
        value_id v = named(n, json_get(e, "name"), &index);
        n->listed = n->listed ? n->listed : index;
        return v;
    }
    if (u && strcmp(u->key, "as_none") == 0)
        return (value_id){0};
    if (u && strcmp(u->key, "as_tensor") == 0)
        return named(n, json_get(u, "name"), &index);
    if (u && strcmp(u->key, "as_name") == 0)
        return named(n, u, &index);
    if (u && strcmp(u->key, "as_int") == 0 && json_as_int(u, &i))
        return constant_int(n, i);
    refuse(n, "a list of operands holds what is neither a tensor nor an integer");
    return (value_id){0};
}

static void list_of_values(struct pending *n, uint32_t arg, const struct json *list)
{
    const int64_t entry[3] = {arg, n->in.n, list->n};
    for (uint32_t i = 0; i < 3; i++)
        VEC_PUSH(&n->p->scratch, &n->lists, entry[i]);
    for (const struct json *e = json_first(list); e; e = e->next) {
        value_id v = item(n, e);
        VEC_PUSH(&n->p->scratch, &n->in, v);
    }
}

/* A list of numbers of which some are names: of values; else an attribute. */
static void list_of_sizes(struct pending *n, uint32_t arg, const char *name, const struct json *list)
{
    int64_t *ints = NEW_ARRAY(&n->p->scratch, int64_t, list->n);
    uint32_t k = 0;
    for (const struct json *e = json_first(list); e; e = e->next)
        if (!json_as_int(json_get(e, "as_int"), &ints[k++])) {
            list_of_values(n, arg, list);
            return;
        }
    put(n, attr_ints(name, ints, k));
}

static void list_of_ints(struct pending *n, const char *name, const struct json *list)
{
    int64_t *ints = NEW_ARRAY(&n->p->scratch, int64_t, list->n);
    uint32_t k = 0;
    for (const struct json *e = json_first(list); e; e = e->next, k++) {
        if (json_is(e, JSON_BOOL))
            ints[k] = e->u.truth;
        else if (!json_as_int(e, &ints[k]))
            refuse(n, "argument '%s' is not an integer", name);
    }
    put(n, attr_ints(name, ints, k));
}

static void list_of_floats(struct pending *n, const char *name, const struct json *list)
{
    double *floats = NEW_ARRAY(&n->p->scratch, double, list->n);
    uint32_t k = 0;
    for (const struct json *e = json_first(list); e; e = e->next, k++)
        if (!json_as_number(e, &floats[k]))
            refuse(n, "argument '%s' is not a number", name);
    put(n, (struct attr){.name = name, .kind = ATTR_FLOATS, .n = k, .u.floats = floats});
}

/* What a schema's letter lets an argument be: groups of union tags. */
static bool tag_fits(char type, const char *tag)
{
    static const struct {
        const char *letters, *tags;
    } groups[] = {
        {"TO", "tensor optional_tensor int float bool sym_int sym_float sym_bool"},
        {"L", "tensors optional_tensors nested_tensors"},
        {"N", "tensors optional_tensors"},
        {"i", "int sym_int bool"},
        {"I", "ints sym_ints int sym_int tensors"},
        {"f", "float int sym_float sym_int"},
        {"F", "floats ints tensors"},
        {"s", "int float bool sym_int sym_float sym_bool"},
        {"b", "bool int sym_bool"},
        {"B", "bools ints tensors"},
        {"S", "string"},
        {"t", "scalar_type int"},
        {"x", "layout device memory_format string bool int scalar_type"},
        {"G", "graph tensors sym_ints ints int tensor bool string float scalar_type device"},
    };
    for (uint32_t i = 0; i < COUNT_OF(groups); i++)
        if (strchr(groups[i].letters, type) && has_word(groups[i].tags, tag))
            return true;
    return false;
}

/* A known number, or one of the run: {as_int: 3}, {as_name: "s"}. */
static void symbolic(struct pending *n, uint32_t arg, const char *name, const struct json *u)
{
    const struct json *inner = json_only(u);
    int64_t i;
    double f;
    uint32_t index;
    if (inner && strcmp(inner->key, "as_name") == 0)
        n->in.data[arg] = named(n, inner, &index);
    else if (json_as_int(inner, &i))
        put(n, attr_int(name, i));
    else if (json_is(inner, JSON_BOOL))
        put(n, attr_int(name, inner->u.truth));
    else if (json_as_number(inner, &f))
        put(n, attr_float(name, f));
    else
        refuse(n, "argument '%s' is neither a number nor the name of one", name);
}

static void scalar(struct pending *n, uint32_t arg, const char *name, const char *tag, const struct json *u)
{
    double f;
    int64_t i;
    uint32_t index;
    if (strcmp(tag, "tensor") == 0) {
        n->in.data[arg] = named(n, json_get(u, "name"), &index);
        if (arg == 0)
            n->first = index;
    } else if (strcmp(tag, "optional_tensor") == 0) {
        n->in.data[arg] = item(n, u);
    } else if (strncmp(tag, "sym_", 4) == 0) {
        symbolic(n, arg, name, u);
    } else if (json_is(u, JSON_BOOL)) {
        put(n, attr_int(name, u->u.truth));
    } else if (strcmp(tag, "float") == 0 && json_as_number(u, &f)) {
        put(n, attr_float(name, f));
    } else if (strcmp(tag, "scalar_type") == 0 && json_as_int(u, &i) && elem_by_torch(i) != ELEM_NONE) {
        put(n, attr_elem(name, elem_by_torch(i)));
    } else if (json_as_int(u, &i)) {
        put(n, attr_int(name, i));
    } else if (json_as_text(u)) {
        put(n, attr_str(name, json_as_text(u)));
    } else {
        refuse(n, "argument '%s' has a value that its tag 'as_%s' does not say", name, tag);
    }
}

static void argument(struct pending *n, uint32_t arg, const struct schema_arg *a, const struct json *given)
{
    const struct json *u = json_only(given);
    const char *tag = u && strncmp(u->key, "as_", 3) == 0 ? u->key + 3 : NULL;
    if (!tag) {
        refuse(n, "argument '%s' is not a union of one member", a->name);
        return;
    }
    if (strcmp(tag, "none") == 0) {
        if (strncmp(a->absent, "None", a->n_absent ? a->n_absent : 1) != 0 && a->type != 'O')
            refuse(n, "argument '%s' is None, which %s does not take", a->name, n->what);
        return;
    }
    if (a->type == 'x' && tag_fits('x', tag))
        return; /* devices, layouts and memory formats say nothing of values */
    if (!tag_fits(a->type, tag)) {
        refuse(n, "argument '%s' is of kind '%s', which %s does not take", a->name, tag, n->what);
        return;
    }
    const char *name = arena_strdup(&n->p->scratch, a->name);
    if (!json_is(u, JSON_LIST))
        scalar(n, arg, name, tag, u);
    else if (strcmp(tag, "sym_ints") == 0)
        list_of_sizes(n, arg, name, u);
    else if (strcmp(tag, "floats") == 0)
        list_of_floats(n, name, u);
    else if (strcmp(tag, "ints") == 0 || strcmp(tag, "bools") == 0 || (strchr("IFB", a->type) && u->n == 0))
        list_of_ints(n, name, u);
    else
        list_of_values(n, arg, u);
}

/* The default, where the schema has one that is not None: a number, a list of integers, a text. */
static void argument_absent(struct pending *n, const struct schema_arg *a)
{
    const char *text = arena_strndup(&n->p->scratch, a->absent, a->n_absent), *name;
    int64_t list[8];
    uint32_t k = 0;
    if (!*text)
        refuse(n, "argument '%s' of %s is missing", a->name, n->what);
    if (!*text || strcmp(text, "None") == 0)
        return;
    name = arena_strdup(&n->p->scratch, a->name);
    if (*text == '[') {
        for (const char *p = text + 1; *p != ']' && k < COUNT_OF(list); p += *p == ',')
            list[k++] = strtoll(p, (char **)(uintptr_t)&p, 10);
        put(n, attr_ints(name, arena_copy(&n->p->scratch, list, sizeof list), k));
    } else if (a->type == 'S') {
        put(n, attr_str(name, text));
    } else if (strpbrk(text, ".e")) {
        put(n, attr_float(name, strtod(text, NULL)));
    } else {
        put(n, attr_int(name, strtoll(text, NULL, 10)));
    }
}

const struct json *node_arg(const struct json *node, const char *name)
{
    for (const struct json *i = json_first(json_get(node, "inputs")); i; i = i->next) {
        const char *text = json_as_text(json_get(i, "name"));
        if (text && strcmp(text, name) == 0)
            return json_get(i, "arg");
    }
    return NULL;
}

void arguments(struct pending *n, const struct schema *schema, const struct json *node, const struct instead *by)
{
    struct schema_arg args[SCHEMA_ARGS_MAX];
    uint32_t n_args = torch_schema_args(schema, args), known = 0;
    for (uint32_t i = 0; i < n_args; i++)
        VEC_PUSH(&n->p->scratch, &n->in, ((value_id){0}));
    for (uint32_t i = 0; i < n_args; i++) {
        const struct json *given = node_arg(node, args[i].name);
        if (!given && i == 0) /* operators that write to it call it otherwise */
            given = json_get(json_first(json_get(node, "inputs")), "arg");
        known += given != NULL;
        if (by && (i == 0 || strcmp(args[i].name, "src") == 0))
            n->in.data[i] = i == 0 ? by->self : by->src;
        else if (given)
            argument(n, i, &args[i], given);
        else
            argument_absent(n, &args[i]);
    }
    if (!by && known < json_get(node, "inputs")->n)
        refuse(n, "%s has an argument that this version of mcc does not know, or one twice", n->what);
    if (n->lists.n)
        put(n, attr_ints("lists", n->lists.data, n->lists.n));
}

void arguments_unknown(struct pending *n, const struct json *node)
{
    uint32_t index;
    for (const struct json *i = json_first(json_get(node, "inputs")); i; i = i->next) {
        const struct json *u = json_only(json_get(i, "arg"));
        if (u && strcmp(u->key, "as_tensor") == 0)
            VEC_PUSH(&n->p->scratch, &n->in, named(n, json_get(u, "name"), &index));
    }
}
