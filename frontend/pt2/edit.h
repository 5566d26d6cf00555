/* What the files of the .pt2 editor share: edit_read.c reads, edit.c edits, edit_write.c writes. */
#pragma once

#include "frontend/pt2/pt2.h"

/* Where a node of the file names a tensor: the text is what is edited. An optional one switches between two members of
 * its union. */
struct edit_slot {
    const char *arg; /* the argument that it stands in */
    struct json *text;
    struct json *optional, *absent, *present; /* the union and its members; NULL: it is always there */
};
struct edit_file_node {
    struct edit_node shown;
    const struct json *json;
    const char *domain, *op;
    bool pure; /* op is the pure operator of the one that the file has */
    bool gone; /* folded into another node */
    uint32_t before; /* what its constants are made from stands in front of this node */
    VEC(struct edit_slot) slots; /* shown.n_in, in that order */
    const char *const *results;
    uint32_t n_results;
    const char **in; /* as edited */
};
struct edit_value {
    const char *name;
    const char *owner; /* the parameter, buffer or constant; NULL: it is none */
    bool constant; /* of the table of constants */
    uint32_t maker; /* the node, + 1; 0: an input of the program */
    uint32_t reads, last; /* how often it is read, and by which node last; UINT32_MAX: it is an output */
    uint32_t storage;
};
struct edit_storage {
    bool kept; /* of an input or weight */
    bool written; /* by a node that stays what it is, so that it matters when one of its values is read */
    uint32_t last; /* reader of its values so far */
};
struct edit_constant {
    const char *name;
    struct tensor_data data;
};
struct edit_added {
    uint32_t before;
    const char *in[2]; /* "": none */
    const char *out;
    struct strbuf json;
};
/* Of a tensor that is new, or another one than the file says: `like` has its sizes, else data has. */
struct edit_meta {
    const char *name;
    enum elem elem;
    const char *like;
    const struct tensor_data *data;
};
struct edit_file {
    struct pt2 p;
    VEC(struct edit_file_node) nodes;
    struct names values_by_name; /* -> index into values */
    VEC(struct edit_value) values; /* [0] unused */
    VEC(struct edit_storage) storages;
    VEC(struct edit_constant) folded; /* constants that opening has changed or made */
    /* the edits */
    struct names new_names;
    VEC(struct edit_constant) constants;
    VEC(struct edit_added) added;
    VEC(struct edit_meta) metas;
    VEC(const char *) outputs;
};

/* edit_read.c */
/* The nodes, values and what can be folded. False after a diagnostic. */
bool edit_read(struct edit_file *);
struct edit_value *edit_value(const struct edit_file *, const char *name); /* NULL: the file has none of that name */
const struct json *edit_meta(const struct edit_file *, const char *name); /* what the file says of it; NULL: nothing */
/* A f32 constant as it is after folding. */
bool edit_constant(struct edit_file *, const char *name, struct tensor_data *out);
bool edit_is_open(const struct edit_file *, const char *name);
/* A name that nothing has, taken from now on. */
const char *edit_name(struct edit_file *, const char *like, const char *what);

/* edit_write.c */
void edit_write(const struct edit_file *, struct strbuf *out);
