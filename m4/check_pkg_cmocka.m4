# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_PKG_CMOCKA: the unit tests. Optional. Sets CMOCKA_CPPFLAGS, CMOCKA_LIBS, conditional HAVE_CMOCKA.
AC_DEFUN([MPATH_CHECK_PKG_CMOCKA], [
  AC_ARG_WITH([cmocka], [AS_HELP_STRING([--with-cmocka@<:@=DIR@:>@], [cmocka: yes, no or its prefix @<:@check@:>@])],
    [], [with_cmocka=check])
  mpath_have_cmocka=no
  mpath_cmocka_summary="no (--without-cmocka)"
  AS_IF([test "x$with_cmocka" != xno], [
    MPATH_CHECK_LIB_AT([CMOCKA], [$with_cmocka], [cmocka.h], [libcmocka], [_cmocka_run_group_tests], [], [-lcmocka],
      [mpath_have_cmocka=yes; mpath_cmocka_summary=yes], [
        AS_IF([test "x$with_cmocka" != xcheck],
          [AC_MSG_ERROR([cmocka not found; install libcmocka-dev or leave --with-cmocka out])])
        mpath_cmocka_summary="no (cmocka not found)"
      ])
  ])
  AM_CONDITIONAL([HAVE_CMOCKA], [test $mpath_have_cmocka = yes])
])
