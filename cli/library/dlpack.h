/* Element types as DLPack has them (runtime/mcc.h). */
#pragma once

#include "ir/ops/ops.h"
#include "runtime/mcc.h"

DLDataType elem_dlpack(enum elem);
enum elem elem_by_dlpack(DLDataType); /* ELEM_NONE: there is none */
