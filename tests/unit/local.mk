# SPDX-License-Identifier: BSD-3-Clause
# Several processes as ranks of a job: unit_NAME_SOURCES = unit/NAME.c $(ranks_sources)
ranks_sources = unit/ranks.c unit/ranks.h unit/ranks_mesh.h unit/ranks_oob.c
unit_programs += unit/test_topo
unit_test_topo_SOURCES = unit/test_topo.c unit/topo_support.c unit/topo_support.h unit/capture.h
unit_programs += unit/test_fiber unit/test_log unit/test_param
unit_test_log_SOURCES = unit/test_log.c unit/capture.h
unit_test_param_SOURCES = unit/test_param.c unit/capture.h
unit_programs += unit/test_segment unit/test_shm
unit_test_shm_SOURCES = unit/test_shm.c unit/lane_pattern.h unit/lane_child.h
if HAVE_GLPK
unit_programs += unit/test_plan_lp
unit_test_plan_lp_SOURCES = unit/test_plan_lp.c unit/plan_lp.c unit/plan_lp.h unit/plan_cases.c unit/plan_cases.h \
	unit/plan_cases_gpu.c
unit_test_plan_lp_LDADD = $(LDADD) $(GLPK_LIBS) -lm
# All instances, minutes: make -C tests plan-lp
plan-lp: unit/test_plan_lp
	unit/test_plan_lp --all
endif
unit_programs += unit/test_machine unit/test_topo_xml
unit_test_machine_SOURCES = unit/test_machine.c unit/capture.h
unit_test_topo_xml_SOURCES = unit/test_topo_xml.c unit/capture.h
EXTRA_DIST += unit/topo/hwloc.xml unit/topo/nccl.xml unit/topo/nccl-hgx.xml unit/topo/nccl-mesh.xml
unit_programs += unit/test_schedule unit/test_gate unit/test_plan_cache
unit_test_schedule_SOURCES = unit/test_schedule.c unit/capture.h unit/grid.h
unit_test_gate_SOURCES = unit/test_gate.c unit/capture.h unit/grid.h
unit_test_plan_cache_SOURCES = unit/test_plan_cache.c unit/capture.h unit/grid.h
unit_programs += unit/test_rail unit/test_rail_flow unit/test_rail_peers
rail_sources = unit/rail_support.c unit/rail_support.h unit/lane_child.h
unit_test_rail_SOURCES = unit/test_rail.c unit/lane_pattern.h $(rail_sources)
unit_test_rail_flow_SOURCES = unit/test_rail_flow.c unit/lane_pattern.h $(rail_sources)
unit_test_rail_peers_SOURCES = unit/test_rail_peers.c $(rail_sources)
unit_programs += unit/test_fabric
unit_test_fabric_SOURCES = unit/test_fabric.c unit/capture.h
unit_programs += unit/test_demand unit/test_plan
unit_test_demand_SOURCES = unit/test_demand.c unit/capture.h
unit_test_plan_SOURCES = unit/test_plan.c unit/capture.h unit/plan_cases.c unit/plan_cases.h unit/plan_cases_gpu.c
unit_programs += unit/test_plan_clusters
unit_test_plan_clusters_SOURCES = unit/test_plan_clusters.c unit/plan_cases.c unit/plan_cases.h unit/plan_cases_gpu.c
unit_test_plan_clusters_LDADD = $(top_builddir)/src/libmpath_clusters.la $(LDADD)
unit_programs += unit/test_plan_follow
unit_test_plan_follow_SOURCES = unit/test_plan_follow.c unit/plan_cases.c unit/plan_cases.h unit/plan_cases_gpu.c
unit_programs += unit/test_agree unit/test_attend
unit_test_attend_SOURCES = unit/test_attend.c $(ranks_sources)
unit_test_agree_SOURCES = unit/test_agree.c $(ranks_sources)
golden_scripts += unit/info
EXTRA_DIST += unit/info
unit_programs += unit/test_failures
unit_test_failures_SOURCES = unit/test_failures.c $(ranks_sources)
unit_programs += unit/test_exchange
unit_test_exchange_SOURCES = unit/test_exchange.c $(ranks_sources)
unit_programs += unit/test_team
unit_test_team_SOURCES = unit/test_team.c $(ranks_sources)
unit_programs += unit/test_move
unit_test_move_SOURCES = unit/test_move.c unit/a2a.c unit/a2a.h unit/capture.h $(ranks_sources)
unit_programs += unit/test_alltoallv
unit_test_alltoallv_SOURCES = unit/test_alltoallv.c unit/a2a.c unit/a2a.h unit/capture.h $(ranks_sources)
unit_programs += unit/test_topo_gpu unit/test_topo_gpu_ranks
topo_gpu_sources = unit/topo_gpu_support.c unit/topo_gpu_support.h unit/topo_support.c unit/topo_support.h unit/capture.h
unit_test_topo_gpu_SOURCES = unit/test_topo_gpu.c $(topo_gpu_sources)
unit_test_topo_gpu_ranks_SOURCES = unit/test_topo_gpu_ranks.c $(topo_gpu_sources)
unit_programs += unit/test_topo_plan
unit_test_topo_plan_SOURCES = unit/test_topo_plan.c unit/capture.h
unit_programs += unit/test_order unit/test_pace unit/test_peer
unit_test_order_SOURCES = unit/test_order.c
unit_test_peer_SOURCES = unit/test_peer.c
unit_test_pace_SOURCES = unit/test_pace.c unit/capture.h
unit_programs += unit/test_time_model
unit_test_time_model_SOURCES = unit/test_time_model.c unit/capture.h unit/plan_cases.c unit/plan_cases.h
unit_test_time_model_LDADD = $(top_builddir)/src/libmpath_plan.la $(LDADD) -lm
# Memory of every kind on a GPU: unit_NAME_SOURCES = unit/NAME.c $(gpu_sources); the driver is fake_cuda/libcuda.so.1.
gpu_sources = unit/gpu_kinds.c unit/gpu_kinds.h
unit_programs += unit/test_gpu_memory
unit_test_gpu_memory_SOURCES = unit/test_gpu_memory.c unit/capture.h $(gpu_sources)
EXTRA_DIST += unit/gpu_abi.c
if HAVE_CUDA_H
unit_test_gpu_memory_SOURCES += unit/gpu_abi.c
unit_test_gpu_memory_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
endif
golden_scripts += unit/plan_tool
EXTRA_DIST += unit/plan_tool
unit_programs += unit/test_moe
unit_test_moe_SOURCES = unit/test_moe.c unit/capture.h
unit_programs += unit/test_gpu_import unit/test_gpu_stream unit/test_gpu_fake unit/test_gpu_reduce
unit_test_gpu_reduce_SOURCES = unit/test_gpu_reduce.c unit/capture.h $(gpu_sources)
unit_test_gpu_fake_SOURCES = unit/test_gpu_fake.c unit/capture.h $(gpu_sources)
unit_test_gpu_import_SOURCES = unit/test_gpu_import.c unit/capture.h $(gpu_sources)
unit_test_gpu_stream_SOURCES = unit/test_gpu_stream.c unit/capture.h $(gpu_sources)
# Figures of the GPU room on the machine's driver; made on demand: make unit/gpu_figures
figure_programs += unit/gpu_figures
unit_gpu_figures_SOURCES = unit/gpu_figures.c $(gpu_sources)
unit_programs += unit/test_machine_gpus
unit_test_machine_gpus_SOURCES = unit/test_machine_gpus.c unit/capture.h $(gpu_sources)
unit_programs += unit/test_adapt unit/test_symmetric
unit_test_adapt_SOURCES = unit/test_adapt.c unit/capture.h
unit_programs += unit/test_store
unit_test_store_SOURCES = unit/test_store.c unit/capture.h
unit_test_symmetric_SOURCES = unit/test_symmetric.c unit/a2a.c unit/a2a.h unit/capture.h $(ranks_sources)
# The parts of the UCX transport that know nothing of UCX.
unit_programs += unit/test_ucx_window unit/test_ucx_spread unit/test_ucx_shares unit/test_ucx_neighbours
unit_test_ucx_neighbours_SOURCES = unit/test_ucx_neighbours.c
unit_test_ucx_neighbours_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
unit_test_ucx_neighbours_LDADD = $(top_builddir)/ucx_tl_mpath/libmpath_spread.la $(LDADD)
unit_test_ucx_shares_SOURCES = unit/test_ucx_shares.c
unit_test_ucx_shares_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
unit_test_ucx_shares_LDADD = $(top_builddir)/ucx_tl_mpath/libmpath_spread.la $(LDADD)
unit_test_ucx_window_SOURCES = unit/test_ucx_window.c
unit_test_ucx_window_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
unit_test_ucx_window_LDADD = $(top_builddir)/ucx_tl_mpath/libmpath_spread.la $(LDADD)
unit_test_ucx_spread_SOURCES = unit/test_ucx_spread.c
unit_test_ucx_spread_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
unit_test_ucx_spread_LDADD = $(top_builddir)/ucx_tl_mpath/libmpath_spread.la $(LDADD)
unit_programs += unit/test_relay
unit_test_relay_SOURCES = unit/test_relay.c unit/a2a.c unit/a2a.h unit/capture.h $(gpu_sources) $(ranks_sources)
