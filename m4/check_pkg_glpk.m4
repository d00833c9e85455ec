# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_PKG_GLPK: exact LP solver the planner's tests compare with. Optional, tests only. Sets GLPK_CPPFLAGS,
# GLPK_LIBS, conditional HAVE_GLPK.
AC_DEFUN([MPATH_CHECK_PKG_GLPK], [
  AC_ARG_WITH([glpk], [AS_HELP_STRING([--with-glpk@<:@=DIR@:>@], [GLPK: yes, no or its prefix @<:@check@:>@])],
    [], [with_glpk=check])
  mpath_have_glpk=no
  mpath_glpk_summary="no (--without-glpk)"
  AS_IF([test "x$with_glpk" != xno], [
    MPATH_CHECK_LIB_AT([GLPK], [$with_glpk], [glpk.h], [libglpk], [glp_simplex], [], [-lglpk],
      [mpath_have_glpk=yes; mpath_glpk_summary=yes], [
        AS_IF([test "x$with_glpk" != xcheck],
          [AC_MSG_ERROR([GLPK not found; install libglpk-dev or leave --with-glpk out])])
        mpath_glpk_summary="no (GLPK not found)"
      ])
  ])
  AM_CONDITIONAL([HAVE_GLPK], [test $mpath_have_glpk = yes])
])
