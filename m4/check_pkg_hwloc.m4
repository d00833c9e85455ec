# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_PKG_HWLOC: topology discovery. Required, 2.0 or newer. Sets HWLOC_CPPFLAGS, HWLOC_LIBS.
AC_DEFUN([MPATH_CHECK_PKG_HWLOC], [
  AC_ARG_WITH([hwloc], [AS_HELP_STRING([--with-hwloc=DIR], [hwloc installation prefix @<:@system@:>@])],
    [], [with_hwloc=yes])
  AS_IF([test "x$with_hwloc" = xno], [AC_MSG_ERROR([--without-hwloc: topology discovery needs hwloc])])
  MPATH_CHECK_LIB_AT([HWLOC], [$with_hwloc], [hwloc.h], [libhwloc], [hwloc_distances_get], [], [-lhwloc],
    [mpath_hwloc_summary=yes],
    [AC_MSG_ERROR([hwloc 2 not found (hwloc.h, libhwloc); install libhwloc-dev or name it with --with-hwloc=DIR])])
])
