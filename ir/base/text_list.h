/* Texts in their order: names, arguments, lines. */
#pragma once

#include "ir/base/base.h"

struct text_list {
    VEC(const char *) items;
};

static inline bool text_list_has(const struct text_list *list, const char *text)
{
    return ROW_NAMED(list->items.data, list->items.n, text) != NULL;
}
