# SPDX-License-Identifier: BSD-3-Clause
# bin_PROGRAMS += tools/NAME; tools_NAME_SOURCES = ...; tools_NAME_LDADD = $(LDADD) $(JANSSON_LIBS).
# An MPI program goes inside `if HAVE_MPI`, with tools_NAME_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS) and $(OMPI_LIBS).
if HAVE_MPI
bin_PROGRAMS += tools/mpath_bench
tools_mpath_bench_SOURCES = tools/bench/bench.h tools/bench/alltoallv.c tools/bench/contest.c tools/bench/emulation.c tools/bench/memory.c \
	tools/bench/memory.h tools/bench/mpit.c tools/bench/nccl.c tools/bench/nccl.h tools/bench/op.c tools/bench/op.h tools/bench/options.c tools/bench/overlap.c tools/bench/pvar.h tools/bench/rails.c \
	tools/bench/report.c tools/bench/symmetric.c tools/bench/mpath_bench.c tools/progress.c tools/progress.h
tools_mpath_bench_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
tools_mpath_bench_LDADD = $(LDADD) $(OMPI_LIBS) $(JANSSON_LIBS)
endif
# What mpath_plan is made of, for its tests as well.
noinst_LTLIBRARIES += libmpath_plan.la
libmpath_plan_la_SOURCES = tools/plan/at_scale.c tools/plan/at_scale.h tools/plan/emulate.c tools/plan/emulate.h tools/plan/input.c tools/plan/input.h tools/plan/report.c \
	tools/plan/report.h tools/plan/rows.c tools/plan/rows.h tools/plan/svg.c tools/plan/svg.h tools/plan/rivals.c tools/plan/rivals.h tools/plan/simulate.c tools/plan/simulate.h
libmpath_plan_la_CFLAGS = $(AM_CFLAGS)
libmpath_plan_la_LIBADD = $(JANSSON_LIBS) -lm
bin_PROGRAMS += tools/mpath_plan
tools_mpath_plan_SOURCES = tools/plan/mpath_plan.c tools/progress.c tools/progress.h
tools_mpath_plan_CPPFLAGS = $(AM_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
tools_mpath_plan_LDADD = libmpath_plan.la $(LDADD) $(JANSSON_LIBS)
bin_PROGRAMS += tools/mpath_report
tools_mpath_report_SOURCES = tools/report/mpath_report.c tools/report/page.c tools/report/page.h tools/report/plan.c tools/report/run.c tools/report/trace.c
tools_mpath_report_CPPFLAGS = $(AM_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
tools_mpath_report_LDADD = libmpath_plan.la $(LDADD) $(JANSSON_LIBS)
# Planning times beside published ones: make bench-plan
EXTRA_PROGRAMS += tools/plan_bench
CLEANFILES += tools/plan_bench$(EXEEXT)
noinst_LTLIBRARIES += libmpath_clusters.la
libmpath_clusters_la_SOURCES = tools/plan/clusters.c tools/plan/clusters.h
libmpath_clusters_la_CFLAGS = $(AM_CFLAGS)
tools_plan_bench_SOURCES = tools/plan/plan_bench.c tools/plan/emulate.c tools/plan/emulate.h tools/plan/input.c tools/plan/input.h
tools_plan_bench_CPPFLAGS = $(AM_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
tools_plan_bench_LDADD = libmpath_clusters.la $(LDADD)
bench-plan: tools/plan_bench
	tools/plan_bench
# What a record of a timeline costs: make bench-trace
EXTRA_PROGRAMS += tools/trace_bench
CLEANFILES += tools/trace_bench$(EXEEXT)
tools_trace_bench_SOURCES = tools/trace/trace_bench.c
bench-trace: tools/trace_bench
	tools/trace_bench
.PHONY: bench-plan bench-trace
bin_PROGRAMS += tools/mpath_info
tools_mpath_info_SOURCES = tools/info/check.c tools/info/check.h tools/info/gpus.c tools/info/gpus.h tools/info/job.c tools/info/job.h tools/info/rates.c \
	tools/info/rates.h tools/info/why.c tools/info/why.h tools/info/mpath_info.c
tools_mpath_info_LDADD = libmpath_plan.la $(LDADD) $(JANSSON_LIBS)
tools_mpath_info_CPPFLAGS = $(AM_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
bin_PROGRAMS += tools/mpath_trace
tools_mpath_trace_SOURCES = tools/trace/mpath_trace.c
tools_mpath_trace_LDADD = $(LDADD) $(JANSSON_LIBS)
tools_mpath_trace_CPPFLAGS = $(AM_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
EXTRA_DIST += tools/README.md
