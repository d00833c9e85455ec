/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels, compiled by nvcc and embedded. */
#ifndef MPATH_DEVICE_KERNELS_FATBIN_H
#define MPATH_DEVICE_KERNELS_FATBIN_H

/* 0: built without nvcc; the image is then a text that a driver refuses to load. */
extern const int mpath_fatbin_built;

/* Image for cuModuleLoadData. */
extern const unsigned char mpath_fatbin[];

#endif
