# SPDX-License-Identifier: BSD-3-Clause
# Recipe for Spack. Put it into a repository of yours as packages/mpath/package.py, and in the folder that has the release
# mpath-0.2.0.tar.xz say: spack install --no-checksum mpath ^openmpi@5
import os

from spack.package import *


class Mpath(AutotoolsPackage):
    """Component of Open MPI that makes skewed MPI_Alltoallv, and reductions and gathers, use every network card of every
    node. It belongs to the Open MPI that it was built with."""

    manual_download = True
    url = "file://{0}/mpath-0.2.0.tar.xz".format(os.getcwd())

    license("BSD-3-Clause")

    version("0.2.0")

    variant("verbs", default=True, description="Rates of InfiniBand and RoCE ports")
    variant("cuda", default=False, description="Kernels for NVIDIA GPUs; the driver is found at run time in any case")

    depends_on("c", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("openmpi@4.1:6.0")
    depends_on("ucx@1.13:")
    depends_on("hwloc@2:")
    depends_on("libxml2")
    depends_on("jansson")
    depends_on("rdma-core", when="+verbs")
    depends_on("cuda", when="+cuda")
    # The developer headers of Open MPI 5 and later include those of PMIx and libevent.
    depends_on("pmix", when="^openmpi@5:")
    depends_on("libevent", when="^openmpi@5:")

    @property
    def component_dir(self):
        return join_path(self.prefix.lib, "openmpi")

    def configure_args(self):
        spec = self.spec
        args = [
            "--with-ompi={0}".format(spec["openmpi"].prefix),
            "--with-ompi-component-dir={0}".format(self.component_dir),
            "--with-ucx={0}".format(spec["ucx"].prefix),
            "--with-hwloc={0}".format(spec["hwloc"].prefix),
            "--with-libxml2={0}".format(spec["libxml2"].prefix),
            "--with-jansson={0}".format(spec["jansson"].prefix),
            "--without-cmocka",
            "--without-glpk",
        ]
        args.append("--with-verbs={0}".format(spec["rdma-core"].prefix) if "+verbs" in spec else "--without-verbs")
        args.append("--with-cuda={0}".format(spec["cuda"].prefix) if "+cuda" in spec else "--without-cuda")
        return args

    def setup_run_environment(self, env):
        default = ":SYS_DEFAULT" if self.spec.satisfies("^openmpi@:4") else ""
        env.set("OMPI_MCA_mca_base_component_path", self.component_dir + default)
