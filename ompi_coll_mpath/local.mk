# SPDX-License-Identifier: BSD-3-Clause
# mcacomponent_LTLIBRARIES += mca_coll_mpath.la
# mca_coll_mpath_la_SOURCES += FILES, headers included
