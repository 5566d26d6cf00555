/* The ELF note by which an artifact says what it is: written by the linker stage, checked by mcc_load.
 *
 * Every shared object of mcc has one note of owner "mcc" and type 1 in a PT_NOTE segment (section .note.mcc, made by
 * runtime/rt_note.c with zeros in it); after the weights are in place the linker stage fills it in. All fields in the
 * target's byte order, which is little-endian everywhere.
 */
#ifndef MCC_NOTE_H
#define MCC_NOTE_H

#include <stdint.h>

enum { MCC_NOTE_TYPE = 1 };

struct mcc_note {
    uint32_t namesz, descsz, type;
    char owner[4];               /* "mcc" */
    /* the description */
    uint32_t abi;                /* MCC_ABI of the artifact */
    uint32_t sealed;             /* 1: the fields below are valid */
    uint64_t file_size;
    uint64_t weights_offset;     /* in the file; without embedded weights: file_size */
    uint64_t weights_size;
    uint64_t hash;               /* XXH64, seed 0, of the file without its weights: [0, weights_offset) followed by
                    * [weights_offset + weights_size, file_size), this field counted as zero */
    uint64_t sidecar_size;       /* bytes of the sidecar file that holds the weights; 0: none */
    uint64_t weights_padding;    /* bytes of the weights that no element of the model lies in */
    char query[64];              /* the exported symbol, "mcc_query" or with its prefix */
};

#endif
