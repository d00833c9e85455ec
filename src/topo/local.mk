# SPDX-License-Identifier: BSD-3-Clause
libmpath_la_SOURCES += topo/gpu_probe.c topo/gpu_probe.h topo/gpu_probe_file.c topo/gpus.c topo/machine.c topo/machine.h \
	topo/machine_gpus.c topo/machine_gpus.h topo/machine_gpus_model.c topo/machine_internal.h topo/machine_rates.c \
	topo/machine_sysfs.c topo/names.c topo/nvml.c topo/nvml.h topo/paths.c topo/paths_gpu.c topo/preset.c topo/topo.c \
	topo/topo.h topo/topo_check.c topo/topo_internal.h \
	topo/xml.c topo/xml.h topo/xml_gpus.c topo/xml_hwloc.c topo/xml_internal.h topo/xml_mpath.c topo/xml_nccl.c \
	topo/xml_nccl_gpus.c topo/xml_write.c
if HAVE_VERBS
libmpath_la_SOURCES += topo/machine_verbs.c
else
libmpath_la_SOURCES += topo/machine_noverbs.c
endif
