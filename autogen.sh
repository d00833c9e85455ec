#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Writes configure and the Makefile.in files; needed after a checkout and after changes of configure.ac, m4 or *.am, *.mk.
set -e
cd "$(dirname "$0")"
mkdir -p build-aux
exec autoreconf --install
