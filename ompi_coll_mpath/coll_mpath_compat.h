/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What differs between Open MPI 4.1, 5.0 and 6.0, so that the other files of the component are one source for all.
 * Include it first: ompi_config.h must come before system headers.
 */
#ifndef COLL_MPATH_COMPAT_H
#define COLL_MPATH_COMPAT_H

#include "ompi_config.h"
#include "mpi.h"
#include "ompi/constants.h"
#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/coll/base/base.h"
#include "ompi/mca/coll/coll.h"
#include "opal/mca/base/base.h"
#if OMPI_MAJOR_VERSION >= 5
#include "ompi/runtime/ompi_rte.h"
#else
#include "ompi/mca/rte/rte.h"
#endif

#include <stddef.h>

/* Open MPI's configuration header names its own package and version. */
#undef PACKAGE_BUGREPORT
#undef PACKAGE_NAME
#undef PACKAGE_STRING
#undef PACKAGE_TARNAME
#undef PACKAGE_URL
#undef PACKAGE_VERSION
#undef PACKAGE
#undef VERSION
#include "config.h"

/* 6.0 takes counts as size_t and arrays whose elements are int or size_t; 4.1 and 5.0 take int. */
#ifdef MPATH_OMPI_COUNT_ARRAYS
typedef size_t mca_coll_mpath_count_t;
typedef ompi_count_array_t mca_coll_mpath_counts_t;
typedef ompi_disp_array_t mca_coll_mpath_displs_t;
#define COLL_MPATH_COUNT(_counts, _i) ((size_t)ompi_count_array_get((_counts), (_i)))
#define COLL_MPATH_DISPL(_displs, _i) ((ptrdiff_t)ompi_disp_array_get((_displs), (_i)))
/* Bytes of an element; the elements; an array of the same kind whose elements are elsewhere. */
#define COLL_MPATH_COUNTS_WIDTH(_counts) (ompi_count_array_is_64bit(_counts) ? sizeof(size_t) : sizeof(int))
#define COLL_MPATH_DISPLS_WIDTH(_displs) (ompi_disp_array_is_64bit(_displs) ? sizeof(ptrdiff_t) : sizeof(int))
#define COLL_MPATH_COUNTS_DATA(_counts) ompi_count_array_ptr(_counts)
#define COLL_MPATH_DISPLS_DATA(_displs) ompi_disp_array_ptr(_displs)
#define COLL_MPATH_COUNTS_AT(_counts, _data)                                                                           \
    (ompi_count_array_is_64bit(_counts) ? ompi_count_array_create_c(_data) : ompi_count_array_create(_data))
#define COLL_MPATH_DISPLS_AT(_displs, _data)                                                                           \
    (ompi_disp_array_is_64bit(_displs) ? ompi_disp_array_create_c(_data) : ompi_disp_array_create(_data))
#else
typedef int mca_coll_mpath_count_t;
typedef const int *mca_coll_mpath_counts_t;
typedef const int *mca_coll_mpath_displs_t;
#define COLL_MPATH_COUNT(_counts, _i) ((size_t)(_counts)[_i])
#define COLL_MPATH_DISPL(_displs, _i) ((ptrdiff_t)(_displs)[_i])
#define COLL_MPATH_COUNTS_WIDTH(_counts) sizeof(*(_counts))
#define COLL_MPATH_DISPLS_WIDTH(_displs) sizeof(*(_displs))
#define COLL_MPATH_COUNTS_DATA(_counts) ((const void *)(_counts))
#define COLL_MPATH_DISPLS_DATA(_displs) ((const void *)(_displs))
#define COLL_MPATH_COUNTS_AT(_counts, _data) (_data)
#define COLL_MPATH_DISPLS_AT(_displs, _data) (_data)
#endif

/* Since 5.0 whoever asks an enumerator for all its values names a form. */
#if OMPI_MAJOR_VERSION >= 5
#define COLL_MPATH_DUMP_FORM , __attribute__((unused)) mca_base_var_enum_dump_type_t form
#else
#define COLL_MPATH_DUMP_FORM
#endif

/* 4.1 tells who copies an attribute of a communicator for which one. */
#if OMPI_MAJOR_VERSION >= 5
#define COLL_MPATH_COPIES_FOR
#else
#define COLL_MPATH_COPIES_FOR , __attribute__((unused)) MPI_Comm other
#endif

/*
 * Up to 5.0 the framework copies the function pointers out of the module after enable; since 6.0 enable writes them
 * into the communicator, and disable puts the previous ones back.
 */
#ifdef MCA_COLL_INSTALL_API
#define COLL_MPATH_INSTALL(_comm, _mpath, _api)                                                                        \
    MCA_COLL_INSTALL_API(_comm, _api, mca_coll_mpath_##_api, &(_mpath)->super, "mpath")
#define COLL_MPATH_UNINSTALL(_comm, _mpath, _api)                                                                      \
    do {                                                                                                               \
        if ((_comm)->c_coll->coll_##_api##_module == &(_mpath)->super) {                                               \
            MCA_COLL_INSTALL_API(_comm, _api, (_mpath)->previous_##_api, (_mpath)->previous_##_api##_module, "mpath"); \
        }                                                                                                              \
    } while (0)
#else
#define COLL_MPATH_INSTALL(_comm, _mpath, _api) ((_mpath)->super.coll_##_api = mca_coll_mpath_##_api)
#define COLL_MPATH_UNINSTALL(_comm, _mpath, _api) ((void)0)
#endif

/*
 * What a process tells all others, or those on its machine, in MPI_Init. Open MPI 4.1 has its own layer; later ones use
 * PMIx itself, whose header belongs to another package, and which may come without the words of other machines.
 */
#if OMPI_MAJOR_VERSION < 5
#include "opal/mca/pmix/pmix.h"
#define COLL_MPATH_HAVE_MODEX 1
#define COLL_MPATH_MODEX_REACHES_ALL 1
#define COLL_MPATH_MODEX_SUCCESS OPAL_SUCCESS
#define COLL_MPATH_MODEX_SEND(_rc, _key, _word_p)                                                                      \
    OPAL_MODEX_SEND_VALUE(_rc, OPAL_PMIX_GLOBAL, _key, _word_p, OPAL_UINT64)
#define COLL_MPATH_MODEX_SEND_LOCAL(_rc, _key, _word_p)                                                                \
    OPAL_MODEX_SEND_VALUE(_rc, OPAL_PMIX_LOCAL, _key, _word_p, OPAL_UINT64)
#define COLL_MPATH_MODEX_RECV(_rc, _key, _name_p, _word_pp)                                                            \
    OPAL_MODEX_RECV_VALUE_IMMEDIATE(_rc, _key, _name_p, _word_pp, OPAL_UINT64)
#elif defined(MPATH_HAVE_PMIX)
#include "opal/mca/pmix/pmix-internal.h"
#define COLL_MPATH_HAVE_MODEX 1
#define COLL_MPATH_MODEX_REACHES_ALL 0
#define COLL_MPATH_MODEX_SUCCESS PMIX_SUCCESS
#define COLL_MPATH_MODEX_SEND(_rc, _key, _word_p) OPAL_MODEX_SEND_VALUE(_rc, PMIX_GLOBAL, _key, _word_p, PMIX_UINT64)
#define COLL_MPATH_MODEX_SEND_LOCAL(_rc, _key, _word_p)                                                                \
    OPAL_MODEX_SEND_VALUE(_rc, PMIX_LOCAL, _key, _word_p, PMIX_UINT64)
#define COLL_MPATH_MODEX_RECV(_rc, _key, _name_p, _word_pp)                                                            \
    OPAL_MODEX_RECV_VALUE_IMMEDIATE(_rc, _key, _name_p, _word_pp, PMIX_UINT64)
#else
#define COLL_MPATH_MODEX_REACHES_ALL 0
#endif

/* The framework's list of components inside libmpi; 6.0 has one more level of pointers. */
#ifdef MCA_BASE_COMPONENT_INIT
#define COLL_MPATH_STATIC_COMPONENT(_framework, _i) (*(_framework)->framework_static_components[_i])
#else
#define COLL_MPATH_STATIC_COMPONENT(_framework, _i) ((_framework)->framework_static_components[_i])
#endif

#endif
