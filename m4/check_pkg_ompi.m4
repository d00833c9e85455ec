# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_PKG_OMPI: Open MPI with its developer headers, for the coll component, mpath_bench and the MPI tests.
# Without it there is no component, so that has to be asked for: --without-ompi. Sets OMPI_CPPFLAGS (MPI programs), OMPI_DEV_CPPFLAGS, OMPI_DEV_LIBS and OMPI_PMIX_LIBS (the component),
# OMPI_LIBS, OMPI_SERIES, MPIRUN, mcacomponentdir, ompi_component_path (what mca_base_component_path has to be, if anything) and the conditionals HAVE_MPI (programs) and HAVE_OMPI (component).
AC_DEFUN([MPATH_CHECK_PKG_OMPI], [
  AC_ARG_WITH([ompi], [AS_HELP_STRING([--with-ompi=DIR], [Open MPI installation prefix @<:@mpicc in PATH@:>@; --without-ompi: the planner alone])],
    [], [with_ompi=check])
  AC_ARG_WITH([ompi-component-dir], [AS_HELP_STRING([--with-ompi-component-dir=DIR],
    [where make install puts mca_coll_mpath.so @<:@the folder Open MPI names, or with a prefix of your own, where you may not
     write there, ~/.openmpi/components@:>@])], [], [with_ompi_component_dir=])
  AS_CASE([$with_ompi_component_dir], ['' | /* | '$'*], [],
    [AC_MSG_ERROR([--with-ompi-component-dir=$with_ompi_component_dir: the path must be absolute])])

  mpath_have_mpi=no
  mpath_have_ompi=no
  mcacomponentdir= mpathhelpdir= ompi_component_path=
  OMPI_CPPFLAGS= OMPI_DEV_CPPFLAGS= OMPI_LIBS= OMPI_DEV_LIBS= OMPI_PMIX_LIBS= OMPI_SERIES=
  AS_CASE([$with_ompi],
    [no], [mpath_ompi_summary="no (--without-ompi)"],
    [check|yes], [AC_PATH_PROG([MPICC], [mpicc]) AC_PATH_PROG([OMPI_INFO], [ompi_info]) AC_PATH_PROG([MPIRUN], [mpirun])],
    [MPICC=$with_ompi/bin/mpicc; OMPI_INFO=$with_ompi/bin/ompi_info; MPIRUN=$with_ompi/bin/mpirun])
  AC_SUBST([MPICC]) AC_SUBST([OMPI_INFO]) AC_SUBST([MPIRUN])

  AS_IF([test "x$with_ompi" != xno], [
    mpath_ompi_incdirs=
    AS_IF([test -n "$MPICC" && test -n "$OMPI_INFO" && mpath_ompi_incdirs=`$MPICC --showme:incdirs 2>/dev/null`],
      [mpath_have_mpi=yes], [MPATH_OMPI_ABSENT])
  ])
  AS_IF([test $mpath_have_mpi = yes], [MPATH_OMPI_PROBE])
  AS_IF([test $mpath_have_ompi = no && test "x$with_ompi" != xno], [
    AS_CASE([$with_ompi], [check|yes], [mpath_asked=], [mpath_asked="--with-ompi=$with_ompi: "])
    AC_MSG_ERROR([${mpath_asked}$mpath_ompi_summary. The component needs Open MPI 4.1, 5.0 or 6.0 with its developer headers
(Debian, Ubuntu: libopenmpi-dev): --with-ompi=DIR names its prefix; --without-ompi builds the planner alone, without the component])
  ])

  AC_SUBST([OMPI_CPPFLAGS]) AC_SUBST([OMPI_DEV_CPPFLAGS]) AC_SUBST([OMPI_LIBS]) AC_SUBST([OMPI_DEV_LIBS]) AC_SUBST([OMPI_PMIX_LIBS])
  AC_SUBST([OMPI_SERIES])
  AC_SUBST([mcacomponentdir]) AC_SUBST([mpathhelpdir]) AC_SUBST([ompi_component_path])
  AM_CONDITIONAL([HAVE_MPI], [test $mpath_have_mpi = yes])
  AM_CONDITIONAL([HAVE_OMPI], [test $mpath_have_ompi = yes])
])

# Why there is none: often it is another MPI's mpicc that comes first in PATH.
AC_DEFUN([MPATH_OMPI_ABSENT], [
  mpath_other_mpi=
  AS_IF([test -n "$MPICC"],
    [mpath_other_mpi=`$MPICC -v 2>&1 | sed -n 's/^.* for \(the Intel(R) MPI Library\|MVAPICH@<:@^ @:>@*\|MPICH\) *\(version *\)*\(.*\)$/\1 \3/p' | sed 's/ *$//;q'`])
  AS_IF([test -n "$mpath_other_mpi"], [mpath_ompi_summary="no ($MPICC is that of $mpath_other_mpi: MPICH and what is made of it are not supported)"],
    [test -n "$MPICC" && test -n "$OMPI_INFO"], [mpath_ompi_summary="no ($MPICC is not that of Open MPI)"],
    [mpath_ompi_summary="no (mpicc and ompi_info of Open MPI not found)"])
])

# Nonzero status: what is to be made at $1 does not belong to who configures.
AC_DEFUN([MPATH_IS_OWN], [
  mpath_above=$1
  while test ! -e "$mpath_above" && test "x$mpath_above" != x/ && test "x$mpath_above" != x.; do
    mpath_above=`AS_DIRNAME(["$mpath_above"])`
  done
  test -O "$mpath_above" && test -w "$mpath_above"
])

# What the found Open MPI is. System include folders, so that its headers are not held to this project's warnings.
AC_DEFUN([MPATH_OMPI_PROBE], [
  AC_MSG_CHECKING([for the Open MPI version])
  mpath_ompi_version=`$OMPI_INFO --version | sed -n 's/^Open MPI v//p'`
  AC_MSG_RESULT([$mpath_ompi_version])
  OMPI_SERIES=`echo "$mpath_ompi_version" | sed 's/^\(@<:@0-9@:>@*\.@<:@0-9@:>@*\).*/\1/'`
  AC_DEFINE_UNQUOTED([MPATH_OMPI_SERIES], ["$OMPI_SERIES"], [Open MPI series the component is built for])
  AC_DEFINE_UNQUOTED([MPATH_OMPI_VERSION], ["$mpath_ompi_version"], [Open MPI version the component is built with])

  for mpath_dir in $mpath_ompi_incdirs; do
    OMPI_CPPFLAGS="$OMPI_CPPFLAGS -isystem $mpath_dir"
  done
  OMPI_DEV_CPPFLAGS=$OMPI_CPPFLAGS
  for mpath_dir in $mpath_ompi_incdirs; do
    AS_IF([test -d "$mpath_dir/openmpi/ompi"], [OMPI_DEV_CPPFLAGS="$OMPI_DEV_CPPFLAGS -isystem $mpath_dir/openmpi"])
  done
  for mpath_dir in `$MPICC --showme:libdirs`; do
    OMPI_LIBS="$OMPI_LIBS -L$mpath_dir"
    AS_CASE([$mpath_dir], [/usr/lib*], [], [OMPI_LIBS="$OMPI_LIBS -Wl,-rpath,$mpath_dir"])
  done
  # Only what a program's own calls need: the wrapper of Open MPI 6 names libopen_mpi beside libmpi.
  for mpath_lib in `$MPICC --showme:libs`; do
    AS_CASE([$mpath_lib], [mpi|open_mpi], [OMPI_LIBS="$OMPI_LIBS -l$mpath_lib"])
  done
  # Open MPI also looks in ~/.openmpi/components. Texts lie beside the component where it is not in Open MPI's own folder.
  mcacomponentdir=$with_ompi_component_dir
  mpathhelpdir=$with_ompi_component_dir
  AS_IF([test -n "$with_ompi_component_dir"],
    [AS_CASE([$OMPI_SERIES], [4.*], [ompi_component_path='$(mcacomponentdir):SYS_DEFAULT'], [ompi_component_path='$(mcacomponentdir)'])])
  mpath_where=
  AS_IF([test -z "$mcacomponentdir"], [
    mcacomponentdir=`$OMPI_INFO --path pkglibdir --parsable | sed -n 's/^path:pkglibdir://p'`
    mpathhelpdir=`$OMPI_INFO --path pkgdatadir --parsable | sed -n 's/^path:pkgdatadir://p'`
    AS_IF([test "x$prefix" != xNONE && test -n "$HOME" && test ! -w "$mcacomponentdir"], [
      AS_IF([MPATH_IS_OWN(["$prefix"])], [
        mpath_where=" (your own: $mcacomponentdir, Open MPI's, cannot be written by you)"
        mcacomponentdir=$HOME/.openmpi/components
        mpathhelpdir=$mcacomponentdir
      ])
    ])
  ])

  # Open MPI 5 and 6 do not install three headers that their opal_config.h names; ours stand in, for pthreads only. They are named
  # by a path from the build folder: an absolute one may have a blank in it.
  # Their headers include PMIx's, which may have a folder of its own.
  mpath_ompi_shim= mpath_ompi_shim_of_make=
  MPATH_OMPI_COMPILES([the coll framework header],
    [mpath_have_ompi=yes], [
      mpath_ompi_shim="-isystem $srcdir/ompi_coll_mpath/shim"
      mpath_ompi_shim_of_make='-isystem $(top_srcdir)/ompi_coll_mpath/shim'
      AS_IF([test -n "$PKG_CONFIG" && mpath_pmix=`$PKG_CONFIG --cflags-only-I pmix 2>/dev/null`],
        [OMPI_DEV_CPPFLAGS="$OMPI_DEV_CPPFLAGS `echo "$mpath_pmix" | sed 's/-I/-isystem /g'`"])
      MPATH_OMPI_COMPILES([the coll framework header with the pthreads shim], [mpath_have_ompi=yes])
    ])
  AS_IF([test $mpath_have_ompi = no],
    [mpath_ompi_summary="no (Open MPI $mpath_ompi_version has no usable ompi/mca/coll/coll.h: config.log says why)"],
    [MPATH_OMPI_COLL_VERSION])
  OMPI_DEV_CPPFLAGS="$OMPI_DEV_CPPFLAGS $mpath_ompi_shim_of_make"
])

# MPATH_OMPI_COMPILES(WHAT, IF-YES, IF-NO, EXTRA-CODE)
AC_DEFUN([MPATH_OMPI_COMPILES], [
  AC_MSG_CHECKING([for $1])
  mpath_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $OMPI_DEV_CPPFLAGS $mpath_ompi_shim"
  AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#include "ompi_config.h"
#include "ompi/mca/coll/coll.h"
#include "ompi/mca/coll/base/base.h"
#include "ompi/communicator/communicator.h"
$4
]])], [mpath_try=yes], [mpath_try=no])
  CPPFLAGS=$mpath_save_CPPFLAGS
  AC_MSG_RESULT([$mpath_try])
  AS_IF([test $mpath_try = yes], [$2], [$3])
])

# The three interfaces of the coll framework: 2.0.0 (Open MPI 4), 2.4.0 (5), 3.0.0 (6).
AC_DEFUN([MPATH_OMPI_COLL_VERSION], [
  mpath_coll_version=
  for mpath_v in 3_0_0 2_4_0 2_0_0; do
    AS_IF([test -z "$mpath_coll_version"], [
      MPATH_OMPI_COMPILES([coll interface $mpath_v], [mpath_coll_version=$mpath_v], [], [
#ifndef MCA_COLL_BASE_VERSION_$mpath_v
#error other version
#endif
])])
  done
  AS_IF([test -z "$mpath_coll_version"], [
    mpath_have_ompi=no
    mpath_ompi_summary="no (Open MPI $mpath_ompi_version has a coll interface this release does not know)"
  ], [
    mpath_ompi_summary="yes ($mpath_ompi_version)"
    AC_DEFINE_UNQUOTED([MPATH_COLL_BASE_VERSION], [MCA_COLL_BASE_VERSION_$mpath_coll_version],
      [initializer of the coll component's version fields])
    # The component also calls opal, and orte while there was one.
    OMPI_DEV_LIBS="$OMPI_LIBS -lopen-pal"
    AS_IF([test $mpath_coll_version = 2_0_0], [OMPI_DEV_LIBS="$OMPI_LIBS -lopen-rte -lopen-pal"])
    AS_IF([test $mpath_coll_version = 3_0_0],
      [AC_DEFINE([MPATH_OMPI_COUNT_ARRAYS], [1], [counts and displacements come as ompi_count_array_t, ompi_disp_array_t])])
    AS_IF([test $mpath_coll_version != 2_0_0],
      [AC_DEFINE([MPATH_OMPI_MODULE_DISABLE], [1], [the coll module has a disable hook])
       MPATH_OMPI_PMIX])
  ])
])

# Later than 4.1, what ranks tell each other in MPI_Init goes through PMIx: the library that Open MPI itself has loaded, whose name
# the linker needs nevertheless.
AC_DEFUN([MPATH_OMPI_PMIX], [
  AC_MSG_CHECKING([for the PMIx that Open MPI uses])
  mpath_have_pmix=no
  mpath_save_CPPFLAGS=$CPPFLAGS
  mpath_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $OMPI_DEV_CPPFLAGS $mpath_ompi_shim"
  mpath_pmix=
  AS_IF([test -n "$PKG_CONFIG"], [mpath_pmix=`$PKG_CONFIG --libs pmix 2>/dev/null`])
  for mpath_pmix_libs in -lpmix "$mpath_pmix"; do
    AS_IF([test $mpath_have_pmix = no], [
      LIBS="$OMPI_DEV_LIBS $mpath_pmix_libs $mpath_save_LIBS"
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include "ompi_config.h"
#include "ompi/proc/proc.h"
#include "opal/mca/pmix/pmix-internal.h"
]], [[
    opal_process_name_t name = *OMPI_PROC_MY_NAME;
    uint64_t word = 1, *word_p = &word;
    int sent, received;

    OPAL_MODEX_SEND_VALUE(sent, PMIX_GLOBAL, "mpath", word_p, PMIX_UINT64);
    OPAL_MODEX_RECV_VALUE_IMMEDIATE(received, "mpath", &name, &word_p, PMIX_UINT64);
    return PMIX_SUCCESS != sent || PMIX_SUCCESS != received || opal_pmix_base_async_modex || !opal_pmix_collect_all_data;
]])], [mpath_have_pmix=yes
       OMPI_PMIX_LIBS=$mpath_pmix_libs])
    ])
  done
  CPPFLAGS=$mpath_save_CPPFLAGS
  LIBS=$mpath_save_LIBS
  AC_MSG_RESULT([$mpath_have_pmix])
  AS_IF([test $mpath_have_pmix = yes],
    [AC_DEFINE([MPATH_HAVE_PMIX], [1], [the component can use the PMIx that Open MPI uses])],
    [mpath_ompi_summary="$mpath_ompi_summary, without PMIx: ranks do not notice at once that others lack mpath"])
])
