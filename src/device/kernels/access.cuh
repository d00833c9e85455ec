/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What C++ has no words for: words that others see, the clock of the GPU, units of 128 bits, fences. As PTX for nvcc; for a
 * compiler of the host, with which the tests' driver runs these kernels (tests/fake_cuda), by its atomic operations.
 */
#ifndef MPATH_DEVICE_KERNELS_ACCESS_CUH
#define MPATH_DEVICE_KERNELS_ACCESS_CUH

#ifdef __CUDACC__

/* The one argument of a kernel, as all its threads see it. */
#define KERNEL_ARGUMENTS(_type) const __grid_constant__ _type arguments

static __device__ __forceinline__ uint64_t kernel_now_ns()
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

static __device__ __forceinline__ uint64_t kernel_load_acquire(uint64_t address)
{
    uint64_t value;

    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t kernel_load_relaxed(uint64_t address)
{
    uint64_t value;

    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}

static __device__ __forceinline__ void kernel_store_release(uint64_t address, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
}

static __device__ __forceinline__ void kernel_store_relaxed(uint64_t address, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(address), "l"(value) : "memory");
}

/* One more in a word of 64 bits; how many there were before. */
static __device__ __forceinline__ uint64_t kernel_count_one(uint64_t address)
{
    uint64_t before;

    asm volatile("atom.acq_rel.sys.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(address) : "memory");
    return before;
}

/* The same in a word of 32 bits, which is 0 again after `most`. */
static __device__ __forceinline__ unsigned kernel_count_round(uint64_t address, unsigned most)
{
    unsigned before;

    asm volatile("atom.acq_rel.sys.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(most) : "memory");
    return before;
}

/* Cheaper than __threadfence_system(), which orders more. */
static __device__ __forceinline__ void kernel_fence_acq_rel()
{
    asm volatile("fence.acq_rel.sys;" : : : "memory");
}

/* What others have written, or this thread itself: past the first-level cache, and not before a wait. */
static __device__ __forceinline__ int4 kernel_load_vector(uint64_t address)
{
    int4 value;

    asm volatile("ld.global.cg.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(address)
                 : "memory");
    return value;
}

/* A unit of data and its number, in one access: who finds the number has the data. */
#if (__CUDACC_VER_MAJOR__ > 12) || ((__CUDACC_VER_MAJOR__ == 12) && (__CUDACC_VER_MINOR__ >= 4))
static __device__ __forceinline__ void kernel_store_unit(uint64_t address, uint64_t bytes, uint64_t number)
{
    asm volatile("{\n\t.reg .b128 unit;\n\tmov.b128 unit, {%1, %2};\n\tst.relaxed.sys.global.b128 [%0], unit;\n\t}"
                 :
                 : "l"(address), "l"(bytes), "l"(number)
                 : "memory");
}

static __device__ __forceinline__ void kernel_load_unit(uint64_t address, uint64_t *bytes_p, uint64_t *number_p)
{
    asm volatile("{\n\t.reg .b128 unit;\n\tld.relaxed.sys.global.b128 unit, [%2];\n\tmov.b128 {%0, %1}, unit;\n\t}"
                 : "=l"(*bytes_p), "=l"(*number_p)
                 : "l"(address)
                 : "memory");
}
#else /* compilers that do not know them make the same accesses of pairs */
static __device__ __forceinline__ void kernel_store_unit(uint64_t address, uint64_t bytes, uint64_t number)
{
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" : : "l"(address), "l"(bytes), "l"(number) : "memory");
}

static __device__ __forceinline__ void kernel_load_unit(uint64_t address, uint64_t *bytes_p, uint64_t *number_p)
{
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(*bytes_p), "=l"(*number_p) : "l"(address) : "memory");
}
#endif

#else /* the host's compiler */

#define KERNEL_ARGUMENTS(_type) const _type &arguments

static inline uint64_t *kernel_word(uint64_t address)
{
    return reinterpret_cast<uint64_t *>(address);
}

/* Who looks at the clock, or at a word that others release, may have to wait for them: they get their turn. */
static inline uint64_t kernel_now_ns()
{
    return host_poll_ns();
}

static inline uint64_t kernel_load_acquire(uint64_t address)
{
    host_poll();
    return __atomic_load_n(kernel_word(address), __ATOMIC_ACQUIRE);
}

static inline uint64_t kernel_load_relaxed(uint64_t address)
{
    return __atomic_load_n(kernel_word(address), __ATOMIC_RELAXED);
}

static inline void kernel_store_release(uint64_t address, uint64_t value)
{
    __atomic_store_n(kernel_word(address), value, __ATOMIC_RELEASE);
}

static inline void kernel_store_relaxed(uint64_t address, uint64_t value)
{
    __atomic_store_n(kernel_word(address), value, __ATOMIC_RELAXED);
}

static inline uint64_t kernel_count_one(uint64_t address)
{
    return __atomic_fetch_add(kernel_word(address), 1, __ATOMIC_ACQ_REL);
}

static inline unsigned kernel_count_round(uint64_t address, unsigned most)
{
    unsigned *word  = reinterpret_cast<unsigned *>(address);
    unsigned before = __atomic_load_n(word, __ATOMIC_RELAXED);

    while (!__atomic_compare_exchange_n(word, &before, (before >= most) ? 0 : before + 1, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
    return before;
}

static inline void kernel_fence_acq_rel()
{
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
}

static inline int4 kernel_load_vector(uint64_t address)
{
    return *reinterpret_cast<const int4 *>(address);
}

/* In two accesses: the number last, and looked at first. */
static inline void kernel_store_unit(uint64_t address, uint64_t bytes, uint64_t number)
{
    __atomic_store_n(kernel_word(address), bytes, __ATOMIC_RELAXED);
    __atomic_store_n(kernel_word(address + 8), number, __ATOMIC_RELEASE);
}

static inline void kernel_load_unit(uint64_t address, uint64_t *bytes_p, uint64_t *number_p)
{
    *number_p = __atomic_load_n(kernel_word(address + 8), __ATOMIC_ACQUIRE);
    *bytes_p  = __atomic_load_n(kernel_word(address), __ATOMIC_RELAXED);
}

#endif
#endif
