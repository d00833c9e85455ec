# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_PKG_VERBS: speed and state of InfiniBand and RoCE ports. Optional. Sets VERBS_CPPFLAGS, VERBS_LIBS,
# MPATH_HAVE_VERBS and the conditional HAVE_VERBS.
AC_DEFUN([MPATH_CHECK_PKG_VERBS], [
  AC_ARG_WITH([verbs], [AS_HELP_STRING([--with-verbs@<:@=DIR@:>@], [libibverbs: yes, no or its prefix @<:@check@:>@])],
    [], [with_verbs=check])
  mpath_have_verbs=no
  mpath_verbs_summary="no (--without-verbs); NIC speeds come from sysfs"
  AS_IF([test "x$with_verbs" != xno], [
    MPATH_CHECK_LIB_AT([VERBS], [$with_verbs], [infiniband/verbs.h], [libibverbs], [ibv_get_device_list], [],
      [-libverbs], [mpath_have_verbs=yes; mpath_verbs_summary=yes], [
        AS_IF([test "x$with_verbs" != xcheck],
          [AC_MSG_ERROR([libibverbs not found; install libibverbs-dev or leave --with-verbs out])])
        mpath_verbs_summary="no (libibverbs not found); NIC speeds come from sysfs"
      ])
  ])
  AS_IF([test $mpath_have_verbs = yes], [AC_DEFINE([MPATH_HAVE_VERBS], [1], [libibverbs is there])])
  AM_CONDITIONAL([HAVE_VERBS], [test $mpath_have_verbs = yes])
])
