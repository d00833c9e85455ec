# SPDX-License-Identifier: BSD-3-Clause
unit_programs += unit/test_child
EXTRA_DIST += unit/child.h
# Several processes as ranks of a job: unit_NAME_SOURCES = unit/NAME.c $(ranks_sources)
ranks_sources = unit/ranks.c unit/ranks.h unit/ranks_mesh.h unit/ranks_oob.c
unit_programs += unit/test_ranks
unit_test_ranks_SOURCES = unit/test_ranks.c $(ranks_sources)
unit_programs += unit/test_topo unit/test_topo_paths
topo_sources = unit/topo_support.c unit/topo_support.h unit/capture.h
unit_test_topo_SOURCES = unit/test_topo.c $(topo_sources)
unit_test_topo_paths_SOURCES = unit/test_topo_paths.c $(topo_sources)
unit_programs += unit/test_fiber unit/test_idle unit/test_log unit/test_param unit/test_process
unit_test_idle_LDFLAGS = -Wl,--wrap=clock_gettime -Wl,--wrap=nanosleep -Wl,--wrap=sched_yield
unit_test_log_SOURCES = unit/test_log.c unit/capture.h
unit_test_param_SOURCES = unit/test_param.c unit/capture.h
unit_programs += unit/test_locale unit/test_record
unit_test_locale_SOURCES = unit/test_locale.c unit/capture.h
unit_test_record_SOURCES = unit/test_record.c unit/capture.h
unit_programs += unit/test_trace
unit_test_trace_SOURCES = unit/test_trace.c unit/capture.h
unit_programs += unit/test_reserve
unit_programs += unit/test_spelling
unit_test_spelling_SOURCES = unit/test_spelling.c unit/capture.h
unit_programs += unit/test_page unit/test_segment unit/test_shm
unit_programs += unit/test_outbox
unit_test_outbox_SOURCES = unit/test_outbox.c $(ranks_sources)
unit_test_segment_LDFLAGS = -Wl,--wrap=posix_fallocate
unit_test_shm_SOURCES = unit/test_shm.c unit/lane_pattern.h unit/lane_child.h unit/step_through.c unit/step_through.h
if HAVE_GLPK
unit_programs += unit/test_plan_lp
unit_test_plan_lp_SOURCES = unit/test_plan_lp.c unit/plan_lp.c unit/plan_lp.h unit/plan_cases.c unit/plan_cases.h \
	unit/plan_cases_gpu.c
unit_test_plan_lp_LDADD = $(LDADD) $(GLPK_LIBS) -lm
# All instances, minutes: make -C tests plan-lp
plan-lp: unit/test_plan_lp
	unit/test_plan_lp --all
endif
unit_programs += unit/test_machine unit/test_topo_xml unit/test_topo_xml_refused
unit_test_machine_SOURCES = unit/test_machine.c unit/capture.h
unit_test_topo_xml_LDFLAGS = -Wl,--wrap=strtod
unit_test_topo_xml_SOURCES = unit/test_topo_xml.c unit/topo_xml_support.h unit/capture.h
unit_test_topo_xml_refused_SOURCES = unit/test_topo_xml_refused.c unit/topo_xml_support.h unit/capture.h
EXTRA_DIST += unit/topo/hwloc.xml unit/topo/nccl.xml unit/topo/nccl-hgx.xml unit/topo/nccl-mesh.xml
unit_programs += unit/test_schedule unit/test_gate unit/test_plan_cache
unit_test_schedule_SOURCES = unit/test_schedule.c unit/grid.h $(topo_gpu_sources)
unit_programs += unit/test_algorithm
unit_test_algorithm_SOURCES = unit/test_algorithm.c unit/capture.h unit/grid.h
unit_programs += unit/test_entry
unit_test_entry_SOURCES = unit/test_entry.c
unit_test_gate_SOURCES = unit/test_gate.c unit/capture.h unit/grid.h
unit_test_plan_cache_SOURCES = unit/test_plan_cache.c unit/capture.h unit/grid.h
unit_programs += unit/test_rail unit/test_rail_flow unit/test_rail_peers unit/test_rail_strangers
rail_sources = unit/rail_support.c unit/rail_support.h unit/lane_child.h
unit_test_rail_SOURCES = unit/test_rail.c unit/lane_pattern.h $(rail_sources)
unit_test_rail_flow_SOURCES = unit/test_rail_flow.c unit/lane_pattern.h $(rail_sources)
unit_test_rail_strangers_SOURCES = unit/test_rail_strangers.c $(rail_sources)
unit_test_rail_peers_SOURCES = unit/test_rail_peers.c $(rail_sources)
unit_programs += unit/test_fabric
unit_test_fabric_SOURCES = unit/test_fabric.c unit/capture.h
unit_programs += unit/test_demand unit/test_plan unit/test_plan_large
unit_test_demand_SOURCES = unit/test_demand.c unit/capture.h
unit_programs += unit/test_rivals
unit_test_rivals_SOURCES = unit/test_rivals.c unit/capture.h
unit_test_rivals_LDADD = $(top_builddir)/src/libmpath_plan.la $(LDADD) -lm
unit_programs += unit/test_at_scale
unit_test_at_scale_SOURCES = unit/test_at_scale.c unit/capture.h
unit_test_at_scale_LDADD = $(top_builddir)/src/libmpath_plan.la $(LDADD) -lm
unit_programs += unit/test_workload
unit_test_workload_SOURCES = unit/test_workload.c unit/capture.h
plan_sources = unit/plan_support.h unit/capture.h unit/plan_cases.c unit/plan_cases.h unit/plan_cases_gpu.c
unit_test_plan_SOURCES = unit/test_plan.c $(plan_sources)
unit_test_plan_large_SOURCES = unit/test_plan_large.c $(plan_sources)
unit_programs += unit/test_pairs
unit_test_pairs_SOURCES = unit/test_pairs.c $(plan_sources)
unit_programs += unit/test_plan_clusters
unit_test_plan_clusters_SOURCES = unit/test_plan_clusters.c unit/plan_support.h unit/capture.h unit/plan_cases.c unit/plan_cases.h unit/plan_cases_gpu.c
unit_test_plan_clusters_LDADD = $(top_builddir)/src/libmpath_clusters.la $(LDADD)
unit_programs += unit/test_plan_bound unit/test_plan_follow
unit_test_plan_bound_SOURCES = unit/test_plan_bound.c unit/capture.h unit/plan_cases.c unit/plan_cases.h unit/plan_cases_gpu.c
unit_test_plan_follow_SOURCES = unit/test_plan_follow.c unit/capture.h unit/plan_cases.c unit/plan_cases.h unit/plan_cases_gpu.c
unit_programs += unit/test_agree unit/test_agree_own unit/test_attend
unit_test_attend_SOURCES = unit/test_attend.c $(ranks_sources)
agree_sources = unit/agree_support.c unit/agree_support.h $(ranks_sources)
unit_test_agree_SOURCES = unit/test_agree.c $(agree_sources)
unit_test_agree_own_SOURCES = unit/test_agree_own.c $(agree_sources)
golden_scripts += unit/commands unit/docs unit/info unit/man unit/packaging unit/scripts unit/trace_tool
EXTRA_DIST += unit/commands unit/docs unit/info unit/man unit/packaging unit/scripts unit/trace_tool
unit_programs += unit/test_connect_kills
unit_test_connect_kills_SOURCES = unit/test_connect_kills.c unit/a2a.c unit/a2a.h unit/capture.h $(ranks_sources)
unit_test_connect_kills_LDADD = $(LDADD) $(UCX_LIBS)
unit_programs += unit/test_failures
unit_test_failures_SOURCES = unit/test_failures.c $(ranks_sources)
unit_programs += unit/test_exchange
unit_test_exchange_SOURCES = unit/test_exchange.c $(ranks_sources)
unit_programs += unit/test_team
unit_test_team_SOURCES = unit/test_team.c $(ranks_sources)
unit_programs += unit/test_team_memory
unit_test_team_memory_SOURCES = unit/test_team_memory.c $(ranks_sources)
unit_programs += unit/test_no_memory
unit_test_no_memory_SOURCES = unit/test_no_memory.c $(ranks_sources)
unit_test_no_memory_LDFLAGS = -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=aligned_alloc -Wl,--wrap=mpath_reserve
unit_programs += unit/test_move
unit_test_move_SOURCES = unit/test_move.c unit/a2a.c unit/a2a.h unit/capture.h $(ranks_sources)
unit_programs += unit/test_alltoallv
unit_test_alltoallv_SOURCES = unit/test_alltoallv.c unit/a2a.c unit/a2a.h unit/capture.h $(ranks_sources)
unit_test_alltoallv_LDFLAGS = -Wl,--wrap=clock_gettime
unit_programs += unit/test_topo_gpu unit/test_topo_gpu_ranks
topo_gpu_sources = unit/topo_gpu_support.c unit/topo_gpu_support.h $(topo_sources)
unit_test_topo_gpu_SOURCES = unit/test_topo_gpu.c $(topo_gpu_sources)
unit_test_topo_gpu_ranks_SOURCES = unit/test_topo_gpu_ranks.c $(topo_gpu_sources)
unit_programs += unit/test_topo_plan
unit_test_topo_plan_SOURCES = unit/test_topo_plan.c unit/capture.h
unit_programs += unit/test_order unit/test_pace unit/test_peer unit/test_reduce_predict
unit_test_order_SOURCES = unit/test_order.c
unit_test_order_LDADD = $(LDADD) -lm
unit_test_peer_SOURCES = unit/test_peer.c
unit_test_reduce_predict_SOURCES = unit/test_reduce_predict.c
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
golden_scripts += unit/plan_tool unit/report
EXTRA_DIST += unit/plan_tool unit/report unit/report_page.py
unit_programs += unit/test_moe
unit_test_moe_SOURCES = unit/test_moe.c unit/capture.h
unit_programs += unit/test_gpu_import unit/test_gpu_import_cache unit/test_gpu_stream unit/test_gpu_fake unit/test_gpu_again
unit_test_gpu_again_SOURCES = unit/test_gpu_again.c $(gpu_sources)
# Another vendor's devices: the table of device/device.h, filled by one file.
unit_programs += unit/test_device
unit_test_device_SOURCES = unit/test_device.c unit/fake_device.c unit/fake_device.h unit/gpu_member.c unit/gpu_member.h unit/gpu_kinds.h \
	unit/a2a.c unit/a2a.h unit/capture.h $(ranks_sources)
unit_programs += unit/test_gpu_exchange
unit_test_gpu_exchange_SOURCES = unit/test_gpu_exchange.c $(gpu_sources)
unit_programs += unit/test_gpu_reduce unit/test_gpu_reduce_ranks unit/test_gpu_reduce_writes
reduce_sources = unit/reduce_reference.c unit/reduce_reference.h unit/capture.h $(gpu_sources)
unit_test_gpu_reduce_SOURCES = unit/test_gpu_reduce.c $(reduce_sources)
unit_test_gpu_reduce_ranks_SOURCES = unit/test_gpu_reduce_ranks.c $(reduce_sources)
unit_test_gpu_reduce_writes_SOURCES = unit/test_gpu_reduce_writes.c unit/capture.h $(gpu_sources)
unit_test_gpu_fake_SOURCES = unit/test_gpu_fake.c unit/capture.h $(gpu_sources)
owner_sources = unit/gpu_owner.c unit/gpu_owner.h unit/capture.h $(gpu_sources)
unit_test_gpu_import_SOURCES = unit/test_gpu_import.c $(owner_sources)
unit_programs += unit/test_gpu_lost
unit_test_gpu_lost_SOURCES = unit/test_gpu_lost.c $(owner_sources)
unit_test_gpu_import_cache_SOURCES = unit/test_gpu_import_cache.c $(owner_sources)
unit_test_gpu_stream_SOURCES = unit/test_gpu_stream.c unit/capture.h $(gpu_sources)
# Figures of the machine's GPUs and of the way through its host; made on demand: make unit/gpu_figures
figure_programs += unit/gpu_figures unit/gpu_host_pairs
unit_gpu_figures_SOURCES = unit/gpu_figures.c $(gpu_sources)
unit_gpu_host_pairs_SOURCES = unit/gpu_host_pairs.c $(gpu_sources)
unit_programs += unit/test_machine_gpus
unit_test_machine_gpus_SOURCES = unit/test_machine_gpus.c unit/capture.h $(gpu_sources)
unit_programs += unit/test_tune
unit_test_tune_SOURCES = unit/test_tune.c unit/capture.h
unit_programs += unit/test_adapt unit/test_beside unit/test_passing unit/test_trial unit/test_symmetric unit/test_symmetric_failures unit/test_symmetric_gate
unit_test_symmetric_gate_SOURCES = unit/test_symmetric_gate.c $(symmetric_sources)
unit_programs += unit/test_nic_rates unit/test_rates
rates_sources = unit/rates_support.c unit/rates_support.h unit/a2a.c unit/a2a.h $(symmetric_sources)
unit_test_nic_rates_SOURCES = unit/test_nic_rates.c unit/capture.h $(rates_sources)
unit_test_rates_SOURCES = unit/test_rates.c unit/capture.h $(rates_sources)
unit_test_rates_LDFLAGS = -Wl,--wrap=mpath_move_times
unit_test_adapt_SOURCES = unit/test_adapt.c unit/capture.h
unit_programs += unit/test_nics
unit_test_nics_SOURCES = unit/test_nics.c unit/nics_world.c unit/nics_world.h
unit_test_beside_SOURCES = unit/test_beside.c
unit_test_passing_SOURCES = unit/test_passing.c
unread_wraps = -Wl,--wrap=mpath_fabric_send -Wl,--wrap=mpath_fabric_op_status -Wl,--wrap=mpath_fabric_abort -Wl,--wrap=mpath_fabric_abort_peer
unit_programs += unit/test_dead_end unit/test_resume unit/test_retry unit/test_settled_from unit/test_store
unit_test_dead_end_SOURCES = unit/test_dead_end.c unit/capture.h unit/silent_rail.h unit/a2a.c unit/a2a.h $(symmetric_sources)
unit_test_dead_end_LDFLAGS = -Wl,--wrap=mpath_fabric_send -Wl,--wrap=mpath_wire_peer_status -Wl,--wrap=mpath_fabric_peer -Wl,--wrap=mpath_fabric_peer_status
unit_programs += unit/test_cut_plans
unit_test_cut_plans_SOURCES = unit/test_cut_plans.c unit/a2a.c unit/a2a.h $(ranks_sources)
unit_test_cut_plans_LDFLAGS = -Wl,--wrap=mpath_fabric_progress -Wl,--wrap=mpath_fabric_send -Wl,--wrap=mpath_fabric_take -Wl,--wrap=mpath_fabric_op_status -Wl,--wrap=mpath_fabric_abort -Wl,--wrap=mpath_fabric_abort_peer -Wl,--wrap=mpath_fabric_peer_status -Wl,--wrap=mpath_team_settle -Wl,--wrap=mpath_team_settle_again
unit_test_settled_from_SOURCES = unit/test_settled_from.c
unit_programs += unit/test_team_lost
lost_sources = unit/lost_nics.c unit/lost_nics.h $(ranks_sources)
unit_test_team_lost_SOURCES = unit/test_team_lost.c unit/a2a.c unit/a2a.h $(lost_sources)
unit_programs += unit/test_setup_dead unit/test_unopened
unit_test_setup_dead_SOURCES = unit/test_setup_dead.c unit/capture.h $(ranks_sources)
unit_test_unopened_SOURCES = unit/test_unopened.c unit/a2a.c unit/a2a.h unit/capture.h unit/lost_nics.c unit/lost_nics.h \
	$(symmetric_sources)
unit_programs += unit/test_reach
unit_test_reach_SOURCES = unit/test_reach.c unit/a2a.c unit/a2a.h unit/lost_nics.c unit/lost_nics.h $(symmetric_sources)
unit_test_retry_SOURCES = unit/test_retry.c $(lost_sources)
unit_test_retry_LDFLAGS = -Wl,--wrap=mpath_fabric_join_rail
unit_test_resume_SOURCES = unit/test_resume.c unit/silent_rail.h unit/unread.h $(symmetric_sources)
unit_test_resume_LDFLAGS = $(unread_wraps) -Wl,--wrap=mpath_wire_send -Wl,--wrap=mpath_share_run -Wl,--wrap=mpath_share_link_step \
	-Wl,--wrap=mpath_share_copied
unit_test_store_SOURCES = unit/test_store.c unit/capture.h
symmetric_sources = unit/symmetric_support.c unit/symmetric_support.h unit/capture.h $(ranks_sources)
unit_test_symmetric_SOURCES = unit/test_symmetric.c unit/a2a.c unit/a2a.h $(symmetric_sources)
unit_test_symmetric_failures_SOURCES = unit/test_symmetric_failures.c $(symmetric_sources)
# The parts of the UCX transport that know nothing of UCX.
unit_programs += unit/test_ucx_window unit/test_ucx_spread unit/test_ucx_shares unit/test_ucx_neighbours unit/test_ucx_regions unit/test_ucx_message
unit_test_ucx_message_SOURCES = unit/test_ucx_message.c
unit_test_ucx_message_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
unit_test_ucx_message_LDADD = $(top_builddir)/ucx_tl_mpath/libmpath_spread.la $(LDADD)
unit_test_ucx_regions_SOURCES = unit/test_ucx_regions.c
unit_test_ucx_regions_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)
unit_test_ucx_regions_LDADD = $(top_builddir)/ucx_tl_mpath/libmpath_spread.la $(LDADD)
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
# Communicators on device memory: unit_NAME_SOURCES = unit/NAME.c $(member_sources), or $(relay_sources) with GPUs described to them
member_sources = unit/gpu_member.c unit/gpu_member.h unit/a2a.c unit/a2a.h unit/capture.h $(gpu_sources) $(ranks_sources)
relay_sources = unit/relay_support.c unit/relay_support.h $(member_sources)
gpu_ranks_sources = unit/gpu_ranks.c unit/gpu_ranks.h
held_sources = unit/gpu_held.c unit/gpu_held.h
unit_programs += unit/test_relay
unit_test_relay_SOURCES = unit/test_relay.c $(relay_sources)
unit_programs += unit/test_relay_faults unit/test_relay_gpus unit/test_relay_owners
unit_test_relay_gpus_SOURCES = unit/test_relay_gpus.c $(relay_sources)
unit_test_relay_faults_SOURCES = unit/test_relay_faults.c $(held_sources) $(relay_sources)
unit_test_relay_faults_LDFLAGS = -Wl,--wrap=mpath_wire_peer_status -Wl,--wrap=mpath_stream_done
unit_programs += unit/test_relay_memory
unit_test_relay_memory_SOURCES = unit/test_relay_memory.c $(relay_sources)
unit_test_relay_memory_LDFLAGS = -Wl,--wrap=mpath_shared_memory_free
unit_programs += unit/test_relay_cut
unit_test_relay_cut_SOURCES = unit/test_relay_cut.c unit/unread.h $(relay_sources)
unit_test_relay_cut_LDFLAGS = $(unread_wraps) -Wl,--wrap=mpath_topo_create_with_gpus -Wl,--wrap=mpath_wire_send -Wl,--wrap=mpath_wire_peer_status -Wl,--wrap=mpath_stream_done
unit_test_relay_owners_SOURCES = unit/test_relay_owners.c $(relay_sources)
unit_test_relay_owners_LDFLAGS = -Wl,--wrap=openat -Wl,--wrap=unlink -Wl,--wrap=mpath_relay_slot_take
unit_programs += unit/test_relay_discover
unit_test_relay_discover_SOURCES = unit/test_relay_discover.c $(relay_sources)
unit_test_relay_discover_LDFLAGS = -Wl,--wrap=mpath_gpu_find_nics
unit_programs += unit/test_relay_choice unit/test_relay_rates
unit_test_relay_rates_SOURCES = unit/test_relay_rates.c unit/step_clock.c unit/step_clock.h $(relay_sources)
unit_test_relay_rates_LDFLAGS = -Wl,--wrap=clock_gettime -Wl,--wrap=mpath_relay_move -Wl,--wrap=mpath_pace_take -Wl,--wrap=mpath_wire_send
unit_test_relay_choice_SOURCES = unit/test_relay_choice.c $(relay_sources)
unit_programs += unit/test_relay_feed
unit_test_relay_feed_LDFLAGS = -Wl,--wrap=mpath_relay_hand
unit_programs += unit/test_gpu_sizes
unit_programs += unit/test_gpu_times
unit_test_gpu_times_SOURCES = unit/test_gpu_times.c $(gpu_ranks_sources) $(relay_sources)
unit_test_gpu_times_LDFLAGS = -Wl,--wrap=mpath_order_compute -Wl,--wrap=mpath_plan_cache_get -Wl,--wrap=mpath_gpu_launches_start_eager
unit_programs += unit/test_gpu_help
unit_test_gpu_help_SOURCES = unit/test_gpu_help.c $(gpu_ranks_sources) $(member_sources)
unit_test_gpu_help_LDFLAGS = -Wl,--wrap=mpath_trials_ended -Wl,--wrap=mpath_peer_again_launch
unit_programs += unit/test_gpu_history
unit_test_gpu_history_SOURCES = unit/test_gpu_history.c $(gpu_sources) $(ranks_sources)
unit_test_gpu_history_LDFLAGS = -Wl,--wrap=mpath_beside_note
unit_programs += unit/test_gpu_engines
unit_test_gpu_engines_SOURCES = unit/test_gpu_engines.c $(gpu_ranks_sources) $(member_sources)
unit_test_gpu_engines_LDADD = $(LDADD) -lm
unit_programs += unit/test_gpu_account
unit_test_gpu_account_SOURCES = unit/test_gpu_account.c $(gpu_ranks_sources) $(member_sources)
unit_programs += unit/test_gpu_refused
unit_test_gpu_refused_SOURCES = unit/test_gpu_refused.c $(gpu_ranks_sources) $(member_sources)
unit_programs += unit/test_gpu_turns
unit_test_gpu_turns_SOURCES = unit/test_gpu_turns.c $(gpu_ranks_sources) $(member_sources)
unit_programs += unit/test_gpu_staged_calls
unit_test_gpu_staged_calls_SOURCES = unit/test_gpu_staged_calls.c $(gpu_ranks_sources) $(member_sources)
unit_test_gpu_staged_calls_LDFLAGS = -Wl,--wrap=mpath_idle_is_crowded
unit_programs += unit/test_function
unit_programs += unit/test_doubt unit/test_load
unit_test_doubt_SOURCES = unit/test_doubt.c unit/a2a.c unit/a2a.h $(symmetric_sources)
unit_test_doubt_LDFLAGS = -Wl,--wrap=mpath_doubt_took -Wl,--wrap=mpath_trials_ended
unit_test_load_SOURCES = unit/test_load.c
unit_programs += unit/test_share_rates
unit_test_share_rates_SOURCES = unit/test_share_rates.c unit/capture.h unit/silent_rail.h $(symmetric_sources)
unit_test_share_rates_LDFLAGS = -Wl,--wrap=mpath_share_measured -Wl,--wrap=mpath_doubt_took -Wl,--wrap=mpath_share_run
unit_test_function_SOURCES = unit/test_function.c $(ranks_sources)
unit_programs += unit/test_gpu_nodes unit/test_gpu_nodes_cut unit/test_gpu_nodes_faults unit/test_gpu_nodes_ways
gpu_nodes_sources = unit/gpu_nodes.c unit/gpu_nodes.h $(gpu_sources) $(symmetric_sources)
unit_test_gpu_nodes_SOURCES = unit/test_gpu_nodes.c $(gpu_nodes_sources)
unit_test_gpu_nodes_cut_SOURCES = unit/test_gpu_nodes_cut.c $(held_sources) $(gpu_nodes_sources)
unit_test_gpu_nodes_cut_LDFLAGS = -Wl,--wrap=mpath_stream_done
unit_test_gpu_nodes_faults_SOURCES = unit/test_gpu_nodes_faults.c unit/capture.h $(gpu_nodes_sources)
unit_test_gpu_nodes_ways_SOURCES = unit/test_gpu_nodes_ways.c $(gpu_nodes_sources)
unit_test_gpu_nodes_ways_LDFLAGS = -Wl,--wrap=mpath_owners_announce
unit_programs += unit/test_gpu_symmetric
unit_test_gpu_symmetric_SOURCES = unit/test_gpu_symmetric.c unit/capture.h $(gpu_sources) $(ranks_sources)
unit_programs += unit/test_gpu_eager
unit_test_gpu_eager_SOURCES = unit/test_gpu_eager.c unit/capture.h $(gpu_ranks_sources) $(gpu_sources) $(ranks_sources)
unit_programs += unit/test_gpu_rates
unit_test_gpu_rates_SOURCES = unit/test_gpu_rates.c unit/a2a.c unit/a2a.h unit/capture.h $(gpu_sources) $(ranks_sources)
unit_programs += unit/test_gpu_staged
unit_test_gpu_staged_SOURCES = unit/test_gpu_staged.c unit/capture.h unit/staged_ranks.c unit/staged_ranks.h unit/step_through.c \
	unit/step_through.h $(held_sources) $(gpu_sources)
unit_test_gpu_staged_LDFLAGS = -Wl,--wrap=mpath_stream_done
unit_programs += unit/test_gpu_staged_streams
staged_streams_sources = unit/staged_ranks.c unit/staged_ranks.h unit/staged_streams.c unit/staged_streams.h unit/capture.h $(gpu_sources)
unit_test_gpu_staged_streams_SOURCES = unit/test_gpu_staged_streams.c $(staged_streams_sources)
unit_programs += unit/test_gpu_staged_ends
unit_test_gpu_staged_ends_SOURCES = unit/test_gpu_staged_ends.c $(staged_streams_sources)
unit_programs += unit/test_staging
unit_test_staging_SOURCES = unit/test_staging.c $(gpu_sources)
unit_programs += unit/test_iov
unit_test_iov_SOURCES = unit/test_iov.c unit/capture.h $(gpu_sources)
unit_test_iov_LDFLAGS = -Wl,--wrap=mpath_gpu_driver -Wl,--wrap=mpath_gpu_notice_lost -Wl,--wrap=mpath_memory_classify
unit_programs += unit/test_host_share
unit_test_host_share_SOURCES = unit/test_host_share.c unit/capture.h
# Rails that read and write memory of GPUs, with functions of UCX in front of the library's
unit_programs += unit/test_rail_gpu
unit_test_rail_gpu_SOURCES = unit/test_rail_gpu.c unit/fake_ucx.c unit/fake_ucx.h $(relay_sources)
unit_test_rail_gpu_LDADD = $(LDADD) $(UCX_LIBS) -ldl
if HAVE_VERBS
unit_programs += unit/test_verbs
unit_test_verbs_SOURCES = unit/test_verbs.c
unit_test_verbs_CPPFLAGS = $(AM_CPPFLAGS) $(VERBS_CPPFLAGS)
unit_test_verbs_LDFLAGS = -Wl,--wrap=ibv_get_device_list -Wl,--wrap=ibv_free_device_list -Wl,--wrap=ibv_get_device_name -Wl,--wrap=ibv_open_device -Wl,--wrap=ibv_close_device -Wl,--wrap=ibv_query_port
endif
unit_programs += unit/test_gpu_blocks
unit_test_gpu_blocks_SOURCES = unit/test_gpu_blocks.c unit/capture.h $(gpu_sources)
unit_test_gpu_blocks_LDFLAGS = -Wl,--wrap=mpath_gpu_driver -Wl,--wrap=mpath_memory_block
unit_programs += unit/test_share_cut
unit_test_share_cut_SOURCES = unit/test_share_cut.c unit/capture.h
unit_programs += unit/test_nvml
unit_test_nvml_SOURCES = unit/test_nvml.c unit/capture.h
unit_test_nvml_LDFLAGS = -Wl,--wrap=dlopen -Wl,--wrap=dlsym -Wl,--wrap=dlclose
unit_programs += unit/test_gpu_usage
unit_test_gpu_usage_SOURCES = unit/test_gpu_usage.c unit/capture.h
unit_test_gpu_usage_LDFLAGS = -Wl,--wrap=mpath_gpu_driver -Wl,--wrap=mpath_gpu_enter -Wl,--wrap=mpath_gpu_leave
unit_programs += unit/test_relay_blame
unit_test_relay_blame_SOURCES = unit/test_relay_blame.c unit/capture.h
unit_test_relay_blame_LDFLAGS = -Wl,--wrap=mpath_relay_rails_owe -Wl,--wrap=mpath_relay_rails_name -Wl,--wrap=mpath_team_host
