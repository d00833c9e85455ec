# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += topo/beside.c topo/beside.h topo/names.c topo/paths.c topo/preset.c topo/topo.c \
	topo/topo.h topo/topo_internal.h topo/discover/gpu_probe.c topo/discover/gpu_probe.h \
	topo/discover/gpu_probe_file.c topo/discover/gpus.c topo/discover/gpus.h topo/discover/gpus_model.c \
	topo/discover/machine.c topo/discover/machine.h topo/discover/machine_internal.h topo/discover/nvml.c \
	topo/discover/nvml.h topo/discover/rates.c topo/discover/sysfs.c topo/file/populate.c topo/file/xml.c \
	topo/file/xml.h topo/file/xml_element.c topo/file/xml_element.h topo/file/xml_hwloc.c topo/file/xml_internal.h topo/file/xml_mpath.c \
	topo/file/xml_nccl.c topo/file/xml_write.c
if HAVE_VERBS
libmpath_la_SOURCES += topo/discover/verbs.c
else
libmpath_la_SOURCES += topo/discover/noverbs.c
endif
EXTRA_DIST += topo/README.md
