# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += adapt/beside.c adapt/beside.h adapt/choice.c adapt/choice.h adapt/kept.c adapt/kept.h adapt/known.c adapt/known.h adapt/nics.c adapt/nics.h adapt/passing.c adapt/passing.h adapt/rates.c adapt/rates.h adapt/store.c adapt/store.h adapt/tune.c adapt/tune.h
