# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_PKG_JANSSON: JSON output of the tools. Required. Sets JANSSON_CPPFLAGS, JANSSON_LIBS.
AC_DEFUN([MPATH_CHECK_PKG_JANSSON], [
  AC_ARG_WITH([jansson], [AS_HELP_STRING([--with-jansson=DIR], [jansson installation prefix @<:@system@:>@])],
    [], [with_jansson=yes])
  AS_IF([test "x$with_jansson" = xno], [AC_MSG_ERROR([--without-jansson: the tools need jansson])])
  MPATH_CHECK_LIB_AT([JANSSON], [$with_jansson], [jansson.h], [libjansson], [json_object_set_new], [], [-ljansson],
    [mpath_jansson_summary=yes],
    [AC_MSG_ERROR([jansson not found; install libjansson-dev or name it with --with-jansson=DIR])])
])
