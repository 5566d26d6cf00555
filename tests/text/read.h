/* The cursor over the text of a graph, between graph_parse.c and graph_attrs.c. */
#ifndef MCC_TESTS_TEXT_READ_H
#define MCC_TESTS_TEXT_READ_H

#include "ir/base/scan.h"
#include "ir/graph/graph.h"

struct reader {
    struct context *ctx;
    struct graph *g;
    struct exprs *x;
    struct scan s;
    size_t size;                 /* of the text: no number in it that counts things may pass this */
    VEC(value_id) values;        /* by number in the text */
    VEC(src_id) srcs;
};

/* Records "line N: ..." as an error of the model; false. */
bool read_fail(struct reader *, const char *what);
bool read_accept(struct reader *, const char *token);
bool read_expect(struct reader *, const char *token);          /* as read_accept, an error when it is not there */
const char *read_word(struct reader *);                        /* letters, digits, _ ; "" when there is none */
bool read_int(struct reader *, int64_t *);
bool read_count(struct reader *, uint32_t *);                  /* an integer in [0, size of the text] */
const char *read_string(struct reader *, size_t *n);           /* NULL after an error */
bool read_expr(struct reader *, expr_id *);                    /* "?" gives {0} */
bool read_type(struct reader *, struct type *);
/* "{name=value, ...}" into list; op OP_NONE: every kind is spelled out. Regions are left as indices in u.i. */
typedef VEC(struct attr) attr_list;
bool read_attrs(struct reader *, enum op, attr_list *);
bool read_tensor(struct reader *, struct tensor_data *);

#endif
