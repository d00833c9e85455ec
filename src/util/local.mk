# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += util/cache.c util/cache.h util/file.c util/file.h util/fiber.c util/fiber.h util/log.c util/log.h util/number.c util/number.h util/param.c util/param.h \
	util/param_doc.c util/param_table.c util/pause.h util/process.c util/process.h util/reserve.c util/reserve.h util/secret.c util/secret.h util/spelling.c util/spelling.h util/status.c util/status.h util/time.h
EXTRA_DIST += util/README.md
