/* Element types as DLPack has them (runtime/mcc.h). */
#ifndef MCC_CLI_DLPACK_H
#define MCC_CLI_DLPACK_H

#include "ir/ops/ops.h"
#include "runtime/mcc.h"

DLDataType elem_dlpack(enum elem);
enum elem elem_by_dlpack(DLDataType); /* ELEM_NONE: there is none */

#endif
