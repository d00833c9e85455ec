# SPDX-License-Identifier: BSD-3-Clause
mcacomponent_LTLIBRARIES += mca_coll_mpath.la
mca_coll_mpath_la_SOURCES += coll_mpath.h coll_mpath_allgather.c coll_mpath_allreduce.c coll_mpath_alltoallv.c \
	coll_mpath_alltoallw.c coll_mpath_compat.h coll_mpath_component.c coll_mpath_device.c coll_mpath_device.h \
	coll_mpath_help.c coll_mpath_help.h coll_mpath_lifetime.c coll_mpath_nonblocking.c coll_mpath_oob.c coll_mpath_oob.h \
	coll_mpath_op.c coll_mpath_op.h coll_mpath_pack.c coll_mpath_pack.h coll_mpath_param.c coll_mpath_peers.c \
	coll_mpath_peers.h coll_mpath_pvar.c coll_mpath_record.c coll_mpath_reduce_scatter.c coll_mpath_request.c \
	coll_mpath_request.h coll_mpath_stage.c coll_mpath_stage.h coll_mpath_symmetric.c coll_mpath_symmetric.h \
	coll_mpath_team.c
# Beside the component where its folder was chosen, else where Open MPI 4.1 and 5.0 look for texts.
dist_mpathhelp_DATA = help-coll-mpath.txt
