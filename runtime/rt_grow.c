/* Memory that grows by doubling: what a program's loop collects, and what a trip computes anew in another size. A slot
 * is two words of the program, zero at first: the address and the bytes there. What it held before stays the run's
 * until the run ends, so all of a slot's memory is at most twice the largest request, plus its last doubling.
 */
#include "runtime/rt_internal.h"
#include "runtime/ops/rt_ops.h"

#include "runtime/rt_libc.h"

int64_t mcc_rt_grow(struct mcc_rt_run *run, int64_t *slot, int64_t bytes, int64_t keep)
{
    if (slot[0] && bytes <= slot[1])
        return slot[0];
    int64_t room = slot[1] <= INT64_MAX / 4 && 2 * slot[1] > bytes ? 2 * slot[1] : bytes;
    int64_t at = mcc_rt_segment(run, room);
    if (at < 0)
        return at;
    if (slot[0] && keep > 0)
        memcpy((void *)(intptr_t)at, (const void *)(intptr_t)slot[0], (size_t)keep);
    slot[0] = at;
    slot[1] = room;
    return at;
}
