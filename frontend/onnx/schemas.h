/* The table of every operator of ONNX in every version, and the checks of a node against it. */
#pragma once

#include "frontend/onnx/import.h"

struct schema {
    const char *domain, *op;
    enum schema_state { SCHEMA_CURRENT, SCHEMA_DEPRECATED, SCHEMA_FOREIGN } state;    /* foreign: see schemas.py */
    int32_t min_in, max_in, min_out, max_out;   /* max -1: any number */
    const char *attributes;                     /* see schemas.py */
    int32_t since;
    const char *operands;                       /* see schemas.py */
};

/* The version that an operator set of this version binds to: the newest one not above it. NULL: there is none. */
const struct schema *schema_find(const char *domain, const char *op, int64_t opset);
/* The newest known version of a domain; 0: the domain is not known. */
int32_t domain_newest(const char *domain);
/* The version of a domain that is imported where the importer stands; 0: it is not. */
int64_t opset_of(const struct importer *, const char *domain);

/* Numbers of operands and results, operands left out, attributes and their types, element types as far as known.
 * False after diagnostics, one for each mistake. */
bool schema_check(struct importer *, const struct schema *, const Onnx__NodeProto *, src_id, const value_id *in,
                  const struct attr *attrs, uint32_t n_attr);
/* The regions of If, Loop and Scan: as many parameters and results as the node has operands and results. */
bool schema_check_regions(struct importer *, const struct schema *, node_id, src_id);
