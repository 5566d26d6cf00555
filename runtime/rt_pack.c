/* Packed elements at the ports: 4 and 2 bits, first element in the low bits of a byte (ONNX IR, TensorProto), against
 * one byte per element inside. */
#include "runtime/ops/rt_ops.h"

int64_t mcc_rt_unpack(struct mcc_rt_run *run, const unsigned char *src, unsigned char *dst, int64_t n, int64_t bits,
                      int64_t is_signed)
{
    int64_t per = 8 / bits;
    unsigned mask = (1u << bits) - 1, sign = is_signed ? 1u << (bits - 1) : 0;
    (void)run;
    for (int64_t i = 0; i < n; i++) {
        unsigned v = (unsigned)src[i / per] >> (i % per * bits) & mask;
        dst[i] = (unsigned char)((v ^ sign) - sign);
    }
    return 0;
}

int64_t mcc_rt_pack(struct mcc_rt_run *run, const unsigned char *src, unsigned char *dst, int64_t n, int64_t bits)
{
    int64_t per = 8 / bits;
    unsigned mask = (1u << bits) - 1;
    (void)run;
    for (int64_t b = 0; b < (n + per - 1) / per; b++) {
        unsigned v = 0;
        for (int64_t i = 0; i < per && b * per + i < n; i++)
            v |= ((unsigned)src[b * per + i] & mask) << (i * bits);
        dst[b] = (unsigned char)v;
    }
    return 0;
}
