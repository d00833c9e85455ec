# SPDX-License-Identifier: BSD-3-Clause
# bin_PROGRAMS += tools/NAME; tools_NAME_SOURCES = ...; tools_NAME_LDADD = $(LDADD) $(JANSSON_LIBS).
# An MPI program goes inside `if HAVE_MPI`, with tools_NAME_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS) and $(OMPI_LIBS).
if HAVE_MPI
bin_PROGRAMS += tools/mpath_bench
tools_mpath_bench_SOURCES = tools/bench.h tools/bench_alltoallv.c tools/bench_contest.c tools/bench_emulation.c tools/bench_memory.c \
	tools/bench_memory.h tools/bench_mpit.c tools/bench_nccl.c tools/bench_nccl.h tools/bench_op.c tools/bench_op.h tools/bench_options.c tools/bench_overlap.c tools/bench_pvar.h tools/bench_rails.c \
	tools/bench_report.c tools/bench_symmetric.c tools/mpath_bench.c tools/progress.c tools/progress.h
tools_mpath_bench_CPPFLAGS = $(AM_CPPFLAGS) $(OMPI_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
tools_mpath_bench_LDADD = $(LDADD) $(OMPI_LIBS) $(JANSSON_LIBS)
endif
# What mpath_plan is made of, for its tests as well.
noinst_LTLIBRARIES += libmpath_plan.la
libmpath_plan_la_SOURCES = tools/plan_emulate.c tools/plan_emulate.h tools/plan_input.c tools/plan_input.h tools/plan_report.c \
	tools/plan_report.h tools/plan_svg.c tools/plan_svg.h tools/rivals.c tools/rivals.h tools/simulate.c tools/simulate.h
libmpath_plan_la_CFLAGS = $(AM_CFLAGS)
libmpath_plan_la_LIBADD = $(JANSSON_LIBS) -lm
bin_PROGRAMS += tools/mpath_plan
tools_mpath_plan_SOURCES = tools/mpath_plan.c tools/progress.c tools/progress.h
tools_mpath_plan_CPPFLAGS = $(AM_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
tools_mpath_plan_LDADD = libmpath_plan.la $(LDADD) $(JANSSON_LIBS)
bin_PROGRAMS += tools/mpath_report
tools_mpath_report_SOURCES = tools/mpath_report.c tools/report_page.c tools/report_page.h tools/report_plan.c tools/report_run.c tools/report_trace.c
tools_mpath_report_CPPFLAGS = $(AM_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
tools_mpath_report_LDADD = libmpath_plan.la $(LDADD) $(JANSSON_LIBS)
# Planning times beside published ones: make bench-plan
EXTRA_PROGRAMS += tools/plan_bench
CLEANFILES += tools/plan_bench$(EXEEXT)
noinst_LTLIBRARIES += libmpath_clusters.la
libmpath_clusters_la_SOURCES = tools/plan_clusters.c tools/plan_clusters.h
libmpath_clusters_la_CFLAGS = $(AM_CFLAGS)
tools_plan_bench_SOURCES = tools/plan_bench.c tools/plan_emulate.c tools/plan_emulate.h tools/plan_input.c tools/plan_input.h
tools_plan_bench_CPPFLAGS = $(AM_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
tools_plan_bench_LDADD = libmpath_clusters.la $(LDADD)
bench-plan: tools/plan_bench
	tools/plan_bench
# What a record of a timeline costs: make bench-trace
EXTRA_PROGRAMS += tools/trace_bench
CLEANFILES += tools/trace_bench$(EXEEXT)
tools_trace_bench_SOURCES = tools/trace_bench.c
bench-trace: tools/trace_bench
	tools/trace_bench
.PHONY: bench-plan bench-trace
bin_PROGRAMS += tools/mpath_info
tools_mpath_info_SOURCES = tools/info_check.c tools/info_check.h tools/info_gpus.c tools/info_gpus.h tools/info_job.c tools/info_job.h tools/info_rates.c \
	tools/info_rates.h tools/info_why.c tools/info_why.h tools/mpath_info.c
tools_mpath_info_LDADD = libmpath_plan.la $(LDADD) $(JANSSON_LIBS)
tools_mpath_info_CPPFLAGS = $(AM_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
bin_PROGRAMS += tools/mpath_trace
tools_mpath_trace_SOURCES = tools/mpath_trace.c
tools_mpath_trace_LDADD = $(LDADD) $(JANSSON_LIBS)
tools_mpath_trace_CPPFLAGS = $(AM_CPPFLAGS) -DMPATH_VERSION='"$(PACKAGE_VERSION)"'
EXTRA_DIST += tools/README.md
