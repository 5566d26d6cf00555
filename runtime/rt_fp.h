/* The floating-point control and status register. A run sets it to IEEE defaults (round to nearest even, denormals
 * kept, exceptions masked) and gives the host its own value back, sticky flags included.
 */
#pragma once

#include <stdint.h>

struct rt_fp {
    uint64_t control, status;
};

#if defined(__x86_64__)
static inline struct rt_fp rt_fp_enter(void)
{
    uint32_t saved, normal = 0x1f80;
    __asm__ volatile("stmxcsr %0" : "=m"(saved));
    if (saved != normal)
        __asm__ volatile("ldmxcsr %0" : : "m"(normal));
    return (struct rt_fp){saved, 0};
}
static inline void rt_fp_leave(struct rt_fp fp)
{
    uint32_t saved = (uint32_t)fp.control;
    __asm__ volatile("ldmxcsr %0" : : "m"(saved) : "memory");
}
#elif defined(__aarch64__)
static inline struct rt_fp rt_fp_enter(void)
{
    struct rt_fp fp;
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(fp.control), "=r"(fp.status));
    if (fp.control != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return fp;
}
static inline void rt_fp_leave(struct rt_fp fp)
{
    if (fp.control != 0)
        __asm__ volatile("msr fpcr, %0" : : "r"(fp.control) : "memory");
    __asm__ volatile("msr fpsr, %0" : : "r"(fp.status) : "memory");
}
#else
static inline struct rt_fp rt_fp_enter(void)
{
    struct rt_fp fp = {0, 0};
    __asm__ volatile("frcsr %0" : "=r"(fp.control));
    if (fp.control != 0)
        __asm__ volatile("fscsr %0" : : "r"((uint64_t)0));
    return fp;
}
static inline void rt_fp_leave(struct rt_fp fp)
{
    __asm__ volatile("fscsr %0" : : "r"(fp.control) : "memory");
}
#endif
