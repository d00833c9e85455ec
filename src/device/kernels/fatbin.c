/* SPDX-License-Identifier: BSD-3-Clause */
/* Embeds device/kernels/kernels.fatbin, which make writes into the build's folder, or says that there is none. */
#include "config.h"
#include "device/kernels/fatbin.h"

#ifdef MPATH_HAVE_NVCC
const int mpath_fatbin_built = 1;

__asm__(".pushsection .rodata\n"
        ".global mpath_fatbin\n"
        ".hidden mpath_fatbin\n"
        ".balign 16\n"
        "mpath_fatbin:\n"
        ".incbin \"device/kernels/kernels.fatbin\"\n"
        ".quad 0\n"
        ".popsection\n");
#else
const int mpath_fatbin_built = 0;

const unsigned char mpath_fatbin[] = "mpath was built without nvcc: no kernels";
#endif
