/* What a run of a network takes at least, before anything is known of kernels. */
#pragma once

#include "ir/graph/graph.h"

/* Nanoseconds on one thread of a CPU with AVX-512: of the contractions alone, as fast as tiles reach. Dynamic
 * sizes are extent_hint's guess. For decisions that may cost a part of it. */
double network_ns(const struct graph *);
/* Elements of a tensor, by the same guess. */
double elements_hint(const struct graph *, value_id);
