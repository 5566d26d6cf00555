/* The artifact's one exported function. With a prefix the linker stage exports it as PREFIX_mcc_query instead. */
#include "runtime/mcc.h"
#include "runtime/rt.h"

__attribute__((visibility("default"))) const mcc_api *mcc_query(uint32_t abi)
{
    return abi == MCC_ABI ? mcc_rt_model.api : NULL;
}
