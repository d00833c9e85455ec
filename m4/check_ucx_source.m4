# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_UCX_SOURCE: the transport for UCX itself, which needs UCX's own headers. Off unless asked for. Sets
# UCX_SOURCE_CPPFLAGS, UCX_TL_LIBS, the defines of ucx_tl_mpath/ucx_features.h and the conditional UCX_TL.
AC_DEFUN([MPATH_CHECK_UCX_SOURCE], [
  AC_ARG_WITH([ucx-source], [AS_HELP_STRING([--with-ucx-source=DIR],
    [build the UCX transport mpath against the source of the installed UCX; scripts/fetch-ucx-source gets it @<:@no@:>@])],
    [], [with_ucx_source=no])
  UCX_SOURCE_CPPFLAGS= UCX_TL_LIBS=
  mpath_ucx_tl_summary="off (no --with-ucx-source)"
  AS_IF([test "x$with_ucx_source" != xno], [
    AS_IF([test ! -e "$with_ucx_source/src/uct/base/uct_iface.h"],
      [AC_MSG_ERROR([--with-ucx-source=$with_ucx_source has no src/uct/base/uct_iface.h; scripts/fetch-ucx-source gets the source])])
    mpath_ucx_source=`cd "$with_ucx_source" && pwd`
    MPATH_UCX_SOURCE_PATH
    MPATH_UCX_SOURCE_VERSION
    MPATH_UCX_SOURCE_BUILD
    UCX_SOURCE_CPPFLAGS="-isystem $mpath_ucx_source/src $UCX_CPPFLAGS"
    UCX_TL_LIBS=`echo "$UCX_LIBS" | sed 's/-lucp/-luct/'`
    MPATH_UCX_SOURCE_FEATURES
    UCX_SOURCE_CPPFLAGS="-isystem $mpath_ucx_source_of_make/src $UCX_CPPFLAGS"
    mpath_ucx_tl_summary="yes (UCX $mpath_ucx_version)"
  ])
  AC_SUBST([UCX_SOURCE_CPPFLAGS])
  AC_SUBST([UCX_TL_LIBS])
  AM_CONDITIONAL([UCX_TL], [test "x$with_ucx_source" != xno])
])

# A path with a blank would be two options to the compiler: then one from the build folder, which may have none.
AC_DEFUN([MPATH_UCX_SOURCE_PATH], [
  mpath_ucx_source_of_make=$mpath_ucx_source
  AS_CASE(["$mpath_ucx_source"], [*[[\ \	]]*],
    [mpath_ucx_source=`realpath --relative-to=. "$mpath_ucx_source"`
     mpath_ucx_source_of_make='$(top_builddir)'/$mpath_ucx_source])
  AS_CASE(["$mpath_ucx_source"], ['' | *[[\ \	]]*],
    [AC_MSG_ERROR([--with-ucx-source=$with_ucx_source: the compiler takes no blank in the name of a folder; move the source])])
])

# The source has to be that of the installed UCX: its minor release decides about every layout.
AC_DEFUN([MPATH_UCX_SOURCE_VERSION], [
  mpath_save_CPPFLAGS=$CPPFLAGS
  CPPFLAGS="$CPPFLAGS $UCX_CPPFLAGS"
  AC_MSG_CHECKING([for the release of the installed UCX])
  AC_COMPUTE_INT([mpath_ucx_major], [UCT_VERNO_MAJOR], [#include <uct/api/version.h>], [mpath_ucx_major=0])
  AC_COMPUTE_INT([mpath_ucx_minor], [UCT_VERNO_MINOR], [#include <uct/api/version.h>], [mpath_ucx_minor=0])
  CPPFLAGS=$mpath_save_CPPFLAGS
  mpath_ucx_version=$mpath_ucx_major.$mpath_ucx_minor
  AC_MSG_RESULT([$mpath_ucx_version])
  AC_MSG_CHECKING([for the release of the UCX source])
  # define([ucx_ver_minor], 13) # Minor version. ...
  mpath_ucx_source_version=`grep 'define.*ucx_ver_major' "$mpath_ucx_source/configure.ac" | head -n 1 | tr -cd 0-9`
  mpath_ucx_source_version=$mpath_ucx_source_version.`grep 'define.*ucx_ver_minor' "$mpath_ucx_source/configure.ac" | head -n 1 | tr -cd 0-9`
  AC_MSG_RESULT([$mpath_ucx_source_version])
  AS_IF([test "$mpath_ucx_version" != "$mpath_ucx_source_version"],
    [AC_MSG_ERROR([--with-ucx-source=$with_ucx_source is UCX $mpath_ucx_source_version and UCX $mpath_ucx_version is installed; they have to be the same])])
])

# How the installed UCX was configured decides about layouts too.
AC_DEFUN([MPATH_UCX_SOURCE_BUILD], [
  AC_PATH_PROG([UCX_INFO], [ucx_info], [], [${with_ucx}/bin:$PATH])
  AS_IF([test -z "$UCX_INFO"], [AC_MSG_ERROR([ucx_info not found; install ucx-utils: it tells how UCX was built])])
  AS_MKDIR_P([ucx_tl_mpath])
  AS_IF([{ echo '/* SPDX-License-Identifier: BSD-3-Clause */'; $UCX_INFO -b | grep '^#'; } >ucx_tl_mpath/ucx_build.h.new &&
         grep 'define.*UCX_MODULE_DIR\|define.*ENABLE_' ucx_tl_mpath/ucx_build.h.new >/dev/null], [],
    [AC_MSG_ERROR([$UCX_INFO -b does not tell how UCX was built])])
  AS_IF([cmp -s ucx_tl_mpath/ucx_build.h.new ucx_tl_mpath/ucx_build.h], [rm -f ucx_tl_mpath/ucx_build.h.new],
    [mv ucx_tl_mpath/ucx_build.h.new ucx_tl_mpath/ucx_build.h])
])

AC_DEFUN([MPATH_UCX_SOURCE_FEATURES], [
  mpath_save_CPPFLAGS=$CPPFLAGS
  mpath_save_CFLAGS=$CFLAGS
  CPPFLAGS="-I./ucx_tl_mpath $UCX_SOURCE_CPPFLAGS"
  CFLAGS="$CFLAGS -Werror=incompatible-pointer-types"
  m4_define([mpath_uct_includes], [#include <stddef.h>
#include <ucx_build.h>
#include <ucs/sys/stubs.h>
#include <uct/api/uct.h>
#include <uct/api/version.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
])
  AC_MSG_CHECKING([whether UCX's own headers compile])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([mpath_uct_includes], [[uct_md_ops_t ops; (void)ops;]])], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([the headers of --with-ucx-source=$with_ucx_source do not compile; config.log says why])])
  AC_CHECK_MEMBERS([uct_md_ops_t.mem_attach, uct_md_ops_t.is_sockaddr_accessible, uct_md_ops_t.mem_elem_pack,
    uct_md_ops_t.mem_elem_release, uct_component_t.rkey_compare,
    uct_iface_internal_ops_t.iface_query_v2, uct_iface_internal_ops_t.ep_connect_to_ep_v2,
    uct_iface_internal_ops_t.iface_is_reachable_v2, uct_iface_internal_ops_t.ep_is_connected,
    uct_iface_internal_ops_t.ep_get_device_ep, uct_iface_internal_ops_t.iface_mem_element_pack,
    uct_iface_internal_ops_t.ep_put_sgl_zcopy, uct_iface_internal_ops_t.ep_get_sgl_zcopy,
    uct_iface_internal_ops_t.ep_outstanding_purge], [], [], [mpath_uct_includes])
  AC_CHECK_DECLS([uct_md_base_md_query, UCT_MD_FLAG_INVALIDATE_RMA], [], [], [mpath_uct_includes])
  MPATH_UCX_COMPILES([HAVE_UCT_MD_QUERY_V2], [a memory domain is queried by uct_md_attr_v2_t],
    [static ucs_status_t f(uct_md_h md, uct_md_attr_v2_t *attr);], [uct_md_query_func_t p = f; (void)p;])
  MPATH_UCX_COMPILES([HAVE_UCT_MEM_REG_PARAMS], [memory is registered with uct_md_mem_reg_params_t],
    [static ucs_status_t f(uct_md_h md, void *a, size_t l, const uct_md_mem_reg_params_t *p, uct_mem_h *m);],
    [uct_md_mem_reg_func_t p = f; (void)p;])
  MPATH_UCX_COMPILES([HAVE_UCT_MKEY_PACK_RANGE], [keys are packed of a range],
    [static ucs_status_t f(uct_md_h d, uct_mem_h m, void *a, size_t l, const uct_md_mkey_pack_params_t *p, void *b);],
    [uct_md_mkey_pack_func_t p = f; (void)p;])
  MPATH_UCX_COMPILES([HAVE_UCT_RKEY_UNPACK_PARAMS], [keys are unpacked with uct_rkey_unpack_params_t],
    [static ucs_status_t f(uct_component_t *c, const void *b, const uct_rkey_unpack_params_t *p, uct_rkey_t *r, void **h);],
    [uct_component_rkey_unpack_func_t p = f; (void)p;])
  MPATH_UCX_COMPILES([HAVE_UCT_EP_INVALIDATE_PARAMS], [endpoints are invalidated with uct_ep_invalidate_params_t],
    [static ucs_status_t f(uct_ep_h e, const uct_ep_invalidate_params_t *p);],
    [uct_ep_invalidate_func_t p = f; (void)p;])
  CPPFLAGS=$mpath_save_CPPFLAGS
  CFLAGS=$mpath_save_CFLAGS
])

# MPATH_UCX_COMPILES(MACRO, WHAT, DECLARATION, STATEMENTS)
AC_DEFUN([MPATH_UCX_COMPILES], [
  AC_MSG_CHECKING([whether $2])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([mpath_uct_includes
$3], [$4])], [mpath_try=yes], [mpath_try=no])
  AC_MSG_RESULT([$mpath_try])
  AS_IF([test $mpath_try = yes], [AC_DEFINE([$1], [1], [$2, in the UCX source])])
])
