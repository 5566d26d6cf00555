/* The note that identifies an artifact (mcc_note.h), with the fields that only the linked file can tell left zero. */
#include "runtime/mcc.h"
#include "runtime/mcc_note.h"
#include "runtime/os.h"

extern const struct mcc_note mcc_rt_note;

__attribute__((section(OS_NOTE), used, aligned(8))) const struct mcc_note mcc_rt_note = {
    .namesz = 4,
    .descsz = sizeof(struct mcc_note) - 16,
    .type = MCC_NOTE_TYPE,
    .owner = "mcc",
    .abi = MCC_ABI,
};
