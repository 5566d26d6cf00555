/* The artifact's table as a relocatable object (table.c), and the names that the linker stage needs of it. */
#pragma once

#include "codegen/container/container.h"

#define TABLE_MODEL "mcc_rt_model"     /* struct mcc_rt_desc */
#define TABLE_STATEFUL "mcc_rt_keeping" /* struct mcc_rt_stateful, whose beginning is TABLE_MODEL */

struct object table_object(struct arena *, const struct artifact *);
