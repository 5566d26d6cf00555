/* What mcc writes as JSON: sidecar heads, diagnostics, traces. */
#ifndef MCC_CLI_JSON_H
#define MCC_CLI_JSON_H

#include "ir/base/base.h"

/* Appends text in quotes, escaped; bytes that are no UTF-8 become \u00NN. */
void json_string(struct strbuf *out, const char *text);

#endif
