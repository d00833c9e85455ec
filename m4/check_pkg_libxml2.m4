# SPDX-License-Identifier: BSD-3-Clause
# MPATH_CHECK_PKG_LIBXML2: topology files. Required. Sets LIBXML2_CPPFLAGS, LIBXML2_LIBS.
AC_DEFUN([MPATH_CHECK_PKG_LIBXML2], [
  AC_ARG_WITH([libxml2], [AS_HELP_STRING([--with-libxml2=DIR], [libxml2 installation prefix @<:@system@:>@])],
    [], [with_libxml2=yes])
  mpath_xml_cppflags=
  mpath_xml_libs=-lxml2
  # Its headers live one folder down, which only pkg-config knows for sure.
  AS_CASE([$with_libxml2],
    [no], [AC_MSG_ERROR([--without-libxml2: topology files need libxml2])],
    [yes], [AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists libxml-2.0], [
        mpath_xml_cppflags=`$PKG_CONFIG --cflags libxml-2.0`
        mpath_xml_libs=`$PKG_CONFIG --libs libxml-2.0`
      ], [mpath_xml_cppflags=-I/usr/include/libxml2])],
    [mpath_xml_cppflags="-I$with_libxml2/include/libxml2"])
  MPATH_CHECK_LIB_AT([LIBXML2], [$with_libxml2], [libxml/parser.h], [libxml2], [xmlReadMemory],
    [$mpath_xml_cppflags], [$mpath_xml_libs],
    [mpath_libxml2_summary=yes],
    [AC_MSG_ERROR([libxml2 not found; install libxml2-dev or name it with --with-libxml2=DIR])])
])
