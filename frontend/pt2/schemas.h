/* The table of PyTorch's operators: their arguments in order, and the values of those that a file leaves out. */
#pragma once

#include "ir/base/base.h"

/* How the first result shares memory with the first argument. */
enum schema_alias {
    ALIAS_NONE,
    ALIAS_SAME, /* it is the argument */
    ALIAS_VIEW,
    ALIAS_MAYBE /* a view or a copy, as strides are */
};
enum { SCHEMA_ARGS_MAX = 24 };
struct schema_arg {
    char name[32];
    char type; /* see schemas.py */
    const char *absent; /* "": it must be there; else the default as text */
    uint32_t n_absent;
};
struct schema {
    const char *domain, *ops, *alias, *args; /* ops: all that have these arguments, with spaces between them */
};

bool has_word(const char *words, const char *word); /* is it one of the words, with a space between each two? */
/* NULL: there is none. */
const struct schema *torch_schema(const char *domain, const char *op);
uint32_t torch_schema_args(const struct schema *, struct schema_arg out[SCHEMA_ARGS_MAX]);
enum schema_alias torch_schema_alias(const struct schema *);
