/* What a Cortex-M4F needs before the C library's own start-up: a vector table, and the FPU switched on. */

#include <stdint.h>

extern void _start(void);

static void reset(void) {
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20;
    __asm volatile("dsb\n\tisb");
    _start();
}

struct vectors {
    uint32_t stack;
    void (*reset)(void);
};

extern const struct vectors vectors;
const struct vectors vectors __attribute__((section(".vectors"))) = {0x00400000u, reset};
