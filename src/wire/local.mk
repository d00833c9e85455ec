# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += wire/connect.c wire/failover.c wire/failover.h wire/inbox.c wire/inbox.h wire/links.h \
	wire/links_private.h wire/wire.c wire/wire.h wire/wire_private.h
EXTRA_DIST += wire/README.md
