# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += coll/alltoallv.c coll/alltoallv.h coll/alltoallv_choice.c coll/alltoallv_observe.c coll/alltoallv_private.h coll/alltoallv_rates.c coll/gate.c coll/gate.h coll/plan_cache.c coll/plan_cache.h
libmpath_la_SOURCES += coll/alltoallv_order.c coll/alltoallv_order.h
libmpath_la_SOURCES += coll/allgather.c coll/allreduce.c coll/reduce_scatter.c coll/symmetric.c coll/symmetric.h \
	coll/symmetric_adapt.c coll/symmetric_private.h coll/symmetric_resume.c coll/topo_rates.c coll/topo_rates.h
libmpath_la_SOURCES += coll/share.c coll/share.h coll/share_cut.c coll/share_gpu.c coll/share_gpu.h coll/share_gpu_batch.c \
	coll/share_gpu_batch.h coll/share_gpu_memory.c coll/share_gpu_owners.c coll/share_link.c coll/share_node.c \
	coll/share_predict.c coll/share_private.h coll/share_setup.c coll/share_wait.c
libmpath_la_SOURCES += coll/alltoallv_gpu.c coll/alltoallv_gpu.h coll/alltoallv_gpu_private.h coll/alltoallv_gpu_staged.c coll/alltoallv_gpu_start.c \
	coll/allreduce_gpu.c coll/allreduce_gpu.h coll/allreduce_gpu_eager.c coll/allreduce_gpu_host.c coll/allreduce_gpu_launch.c \
	coll/allreduce_gpu_lent.c coll/allreduce_gpu_lent.h coll/allreduce_gpu_writes.c \
	coll/allreduce_gpu_private.h coll/reduce_predict.c coll/reduce_predict.h \
	coll/alltoallv_gpu_turns.c coll/alltoallv_gpu_wait.c coll/alltoallv_gpu_ways.c coll/alltoallv_room.c coll/alltoallv_room.h coll/shadow.c coll/shadow.h coll/pieces.c coll/pieces.h
libmpath_la_SOURCES += coll/alltoallv_relay.c coll/alltoallv_relay.h
libmpath_la_SOURCES += coll/doubt.c coll/doubt.h coll/load.c coll/load.h
libmpath_la_SOURCES += coll/alltoallv_gpu_choose.c coll/alltoallv_gpu_help.c coll/way_choice.c coll/way_choice.h coll/host_share.c coll/host_share.h
libmpath_la_SOURCES += coll/alltoallv_gpu_exchange.c coll/gpu_eager.c coll/gpu_eager.h coll/gpu_kept.c coll/gpu_kept.h coll/gpu_launches.h coll/gpu_streams.c coll/gpu_streams.h
