# SPDX-License-Identifier: BSD-3-Clause
# MPATH_COMPILER_OPTIONS: warnings, --enable-werror, --enable-sanitizers, --enable-fuzzers.
# Sets MPATH_CFLAGS (every object), MPATH_CXXFLAGS (the kernels, for tests), MPATH_NO_UNDEFINED (shared objects), FUZZER_LDFLAGS and the
# conditionals FUZZERS and SANITIZERS.
AC_DEFUN([MPATH_COMPILER_OPTIONS], [
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [turn compiler warnings into errors @<:@no@:>@])], [], [enable_werror=no])
  AC_ARG_ENABLE([sanitizers],
    [AS_HELP_STRING([--enable-sanitizers=LIST],
      [build with these compiler sanitizers, for instance address,undefined @<:@no@:>@])], [], [enable_sanitizers=no])
  AC_ARG_ENABLE([fuzzers],
    [AS_HELP_STRING([--enable-fuzzers], [build the libFuzzer programs of tests/fuzz, needs clang @<:@no@:>@])],
    [], [enable_fuzzers=no])

  MPATH_CFLAGS="-std=gnu11 -Wall -Wextra -Wvla"
  MPATH_NO_UNDEFINED="-Wl,-z,defs"
  FUZZER_LDFLAGS=

  mpath_werror=$enable_werror
  AS_IF([test "x$enable_werror" = xyes], [MPATH_CFLAGS="$MPATH_CFLAGS -Werror"])

  AS_IF([test "x$enable_sanitizers" = xyes], [enable_sanitizers=address,undefined])
  mpath_sanitizers=$enable_sanitizers
  AS_IF([test "x$enable_sanitizers" != xno], [
    mpath_san_flags="-fsanitize=$enable_sanitizers"
    MPATH_TRY_LINK_FLAGS([$mpath_san_flags], [],
      [AC_MSG_ERROR([$CC cannot link with $mpath_san_flags; install its sanitizer run time or leave --enable-sanitizers out])])
    MPATH_CFLAGS="$MPATH_CFLAGS $mpath_san_flags -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
    # The sanitizer's symbols are resolved in the executable, so a shared object has undefined ones.
    MPATH_NO_UNDEFINED="-fsanitize=$enable_sanitizers"
    LDFLAGS="$LDFLAGS $mpath_san_flags"
  ])

  mpath_fuzzers=$enable_fuzzers
  AS_IF([test "x$enable_fuzzers" != xno], [
    MPATH_TRY_LINK_FLAGS([-fsanitize=fuzzer-no-link], [],
      [AC_MSG_ERROR([$CC has no libFuzzer; configure with CC=clang or leave --enable-fuzzers out])])
    MPATH_CFLAGS="$MPATH_CFLAGS -fsanitize=fuzzer-no-link"
    FUZZER_LDFLAGS="-fsanitize=fuzzer"
  ])
  AM_CONDITIONAL([FUZZERS], [test "x$enable_fuzzers" != xno])
  AM_CONDITIONAL([SANITIZERS], [test "x$enable_sanitizers" != xno])

  AC_SUBST([MPATH_CFLAGS])
  MPATH_CXXFLAGS=`AS_ECHO(["$MPATH_CFLAGS"]) | sed 's/-std=gnu11/-std=gnu++17/'`
  AC_SUBST([MPATH_CXXFLAGS])
  AC_SUBST([MPATH_NO_UNDEFINED])
  AC_SUBST([FUZZER_LDFLAGS])
])

# MPATH_TRY_LINK_FLAGS(FLAGS, IF-YES, IF-NO): does a program compile and link with FLAGS?
AC_DEFUN([MPATH_TRY_LINK_FLAGS], [
  AC_MSG_CHECKING([whether $CC takes $1])
  mpath_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $1"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [mpath_try=yes], [mpath_try=no])
  CFLAGS=$mpath_save_CFLAGS
  AC_MSG_RESULT([$mpath_try])
  AS_IF([test $mpath_try = yes], [$2], [$3])
])

# MPATH_CHECK_LIB_AT(NAME, PREFIX, HEADER, LIBRARY, FUNCTION, CPPFLAGS, LIBS, IF-FOUND, IF-NOT-FOUND)
# Compiles HEADER and links FUNCTION with CPPFLAGS and LIBS, searched below PREFIX when that is a folder.
# Sets NAME_CPPFLAGS and NAME_LIBS.
AC_DEFUN([MPATH_CHECK_LIB_AT], [
  $1_CPPFLAGS="$6"
  $1_LIBS="$7"
  AS_CASE([$2], [yes|no|check|''], [], [
    # The compiler would go on to the system's own.
    AS_IF([test -e "$2/include/$3" || ls "$2"/include/*/"$3" >/dev/null 2>&1], [],
      [AC_MSG_ERROR([there is no $3 below $2/include; name the folder into which it was installed])])
    $1_CPPFLAGS="-I$2/include $$1_CPPFLAGS"
    AS_IF([test -d "$2/lib64"], [mpath_libdir="$2/lib64"], [mpath_libdir="$2/lib"])
    $1_LIBS="-L$mpath_libdir -Wl,-rpath,$mpath_libdir $$1_LIBS"
  ])
  mpath_save_CPPFLAGS=$CPPFLAGS
  mpath_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $$1_CPPFLAGS"
  LIBS="$$1_LIBS $LIBS"
  AC_MSG_CHECKING([for $3 and $5 in $4])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <$3>]], [[return (void *)&$5 == NULL;]])], [mpath_found=yes], [mpath_found=no])
  AC_MSG_RESULT([$mpath_found])
  CPPFLAGS=$mpath_save_CPPFLAGS
  LIBS=$mpath_save_LIBS
  AC_SUBST([$1_CPPFLAGS])
  AC_SUBST([$1_LIBS])
  AS_IF([test $mpath_found = yes], [$8], [$1_CPPFLAGS= $1_LIBS= ; $9])
])
