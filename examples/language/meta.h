/* What an artifact says of its model: mcc_api.meta by key. */
#ifndef META_H
#define META_H

#include <stdint.h>

/* NULL: there is no such key. */
const char *meta_find(const char *meta, const char *key);

/* The value of a key that is a whole number; otherwise: there is none, or it is not a number. */
int64_t meta_whole(const char *meta, const char *key, int64_t otherwise);

#endif
