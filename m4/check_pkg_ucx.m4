# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_PKG_UCX: UCP, which drives the rail lane. Required. Sets UCX_CPPFLAGS, UCX_LIBS.
AC_DEFUN([MPATH_CHECK_PKG_UCX], [
  AC_ARG_WITH([ucx], [AS_HELP_STRING([--with-ucx=DIR], [UCX installation prefix @<:@system@:>@])], [], [with_ucx=yes])
  AS_IF([test "x$with_ucx" = xno], [AC_MSG_ERROR([--without-ucx: the rail lane needs UCX])])
  MPATH_CHECK_LIB_AT([UCX], [$with_ucx], [ucp/api/ucp.h], [libucp], [ucp_worker_progress], [], [-lucp -lucs],
    [mpath_ucx_summary=yes],
    [AC_MSG_ERROR([UCX not found (ucp/api/ucp.h, libucp); install libucx-dev or name it with --with-ucx=DIR])])
])
