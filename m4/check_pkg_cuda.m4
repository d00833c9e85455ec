# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_PKG_CUDA: nvcc for the GPU kernels. Optional; the driver itself is found at run time and needs no header.
# Sets NVCC, NVCCFLAGS, CUDA_CPPFLAGS (of cuda.h, for a test), MPATH_HAVE_NVCC, the conditionals HAVE_NVCC and HAVE_CUDA_H.
AC_DEFUN([MPATH_CHECK_PKG_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
    [compile the GPU kernels with nvcc: yes, no or the CUDA toolkit's folder @<:@check@:>@])], [], [with_cuda=check])
  AC_ARG_VAR([NVCC], [CUDA compiler])
  AC_ARG_VAR([NVCCFLAGS], [flags of the CUDA compiler; targets are chosen unless they are given here])
  mpath_have_nvcc=no
  CUDA_CPPFLAGS=
  mpath_cuda_summary="memory kinds and copy engines, no kernels (--without-cuda)"
  AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda],
      [yes|check|''], [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH:$CUDA_HOME/bin:/usr/local/cuda/bin])],
      [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])
    mpath_cuda_summary="memory kinds and copy engines, no kernels (nvcc not found)"
    AS_IF([test -n "$NVCC"], [MPATH_TRY_NVCC])
    AS_IF([test $mpath_have_nvcc = no && test "x$with_cuda" != xcheck],
      [AC_MSG_ERROR([no nvcc that works; give its folder as --with-cuda=DIR or leave --with-cuda out])])
  ])
  AS_IF([test $mpath_have_nvcc = yes], [AC_DEFINE([MPATH_HAVE_NVCC], [1], [the GPU kernels are compiled])])
  AM_CONDITIONAL([HAVE_NVCC], [test $mpath_have_nvcc = yes])
  mpath_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
  AC_CHECK_HEADER([cuda.h], [mpath_have_cuda_h=yes], [mpath_have_cuda_h=no])
  CPPFLAGS=$mpath_save_CPPFLAGS
  AM_CONDITIONAL([HAVE_CUDA_H], [test $mpath_have_cuda_h = yes])
  AC_SUBST([CUDA_CPPFLAGS])
])

# MPATH_TRY_NVCC: the targets that this nvcc knows (machine code for compute capability 8 and 9, PTX for what comes later).
AC_DEFUN([MPATH_TRY_NVCC], [
  mpath_cuda_dir=`AS_DIRNAME(["$NVCC"])`
  mpath_cuda_dir=`AS_DIRNAME(["$mpath_cuda_dir"])`
  echo 'extern "C" __global__ void k(const __grid_constant__ int i) { }' >conftest.cu
  AS_IF([test -n "$NVCCFLAGS"], [mpath_nvcc_flags=$NVCCFLAGS], [mpath_nvcc_flags=])
  for mpath_try in "$mpath_nvcc_flags" \
      "-O3 -std=c++17 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90" \
      "-O3 -std=c++17 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_80,code=compute_80"; do
    AS_IF([test -n "$mpath_try" && test $mpath_have_nvcc = no], [
      AC_MSG_CHECKING([whether $NVCC takes $mpath_try])
      AS_IF([$NVCC $mpath_try -fatbin -o conftest.fatbin conftest.cu >&AS_MESSAGE_LOG_FD 2>&1],
        [mpath_have_nvcc=yes; NVCCFLAGS=$mpath_try])
      AC_MSG_RESULT([$mpath_have_nvcc])
    ])
  done
  rm -f conftest.cu conftest.fatbin
  AS_IF([test -r "$mpath_cuda_dir/include/cuda.h"], [CUDA_CPPFLAGS="-isystem $mpath_cuda_dir/include"])
  AS_IF([test $mpath_have_nvcc = yes],
    [mpath_cuda_summary="memory kinds, copy engines and kernels ($NVCC)"],
    [mpath_cuda_summary="memory kinds and copy engines, no kernels ($NVCC compiles for none of the GPUs; see config.log)"])
])
