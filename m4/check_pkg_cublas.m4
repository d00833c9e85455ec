# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_PKG_CUBLAS: what examples/moe_layer needs besides MPI: nvcc, the CUDA runtime and cuBLAS, beside each other. Optional.
# After MPATH_CHECK_PKG_CUDA and MPATH_CHECK_PKG_OMPI. Sets CUDA_DIR, MOE_LAYER_MISSING and the conditional HAVE_MOE_LAYER.
AC_DEFUN([MPATH_CHECK_PKG_CUBLAS], [
  CUDA_DIR= MOE_LAYER_MISSING=
  AS_IF([test "$mpath_have_mpi" != yes], [MOE_LAYER_MISSING="no Open MPI"],
    [test "$mpath_have_nvcc" != yes], [MOE_LAYER_MISSING="no nvcc"],
    [CUDA_DIR=`readlink -f "$NVCC"`
     CUDA_DIR=`AS_DIRNAME(["$CUDA_DIR"])`
     CUDA_DIR=`AS_DIRNAME(["$CUDA_DIR"])`
     AS_IF([test ! -r "$CUDA_DIR/include/cublas_v2.h" || test ! -r "$CUDA_DIR/include/cuda_runtime_api.h"],
       [MOE_LAYER_MISSING="no cuBLAS beside $NVCC"])])
  mpath_moe_layer_summary="off ($MOE_LAYER_MISSING)"
  AS_IF([test -z "$MOE_LAYER_MISSING"], [mpath_moe_layer_summary="moe_layer (make examples)"])
  AM_CONDITIONAL([HAVE_MOE_LAYER], [test -z "$MOE_LAYER_MISSING"])
  AC_SUBST([CUDA_DIR]) AC_SUBST([MOE_LAYER_MISSING])
])
