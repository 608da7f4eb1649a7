/* The table a module exports and the thunks that call its kernels. Used by generated code only. */
#ifndef ATTEST_SIMT_MODULE_H
#define ATTEST_SIMT_MODULE_H

template <auto Kernel> struct simt_thunk;

/* What a thread does before its kernel: a header may specialise it (simt_copy.h). */
template <bool> struct simt_thread_hook {
    SIMT_MEMBER __attribute__((always_inline)) static void begin()
    {
    }
};

/* A thunk passes a launch's argument values on; the parameter types come from the kernel itself. */
template <class... Args, void (*Kernel)(Args...)> struct simt_thunk<Kernel> {
    static constexpr uint32_t bytes[sizeof...(Args) + 1] = {sizeof(Args)..., 0};

    template <size_t... I>
    __attribute__((no_sanitize("kernel-address", "address"), always_inline)) static void
    call(void **args, std::index_sequence<I...>)
    {
        Kernel(*static_cast<std::remove_cv_t<Args> *>(args[I])...);
    }
    __attribute__((no_sanitize("kernel-address", "address"))) static void run(void **args)
    {
        simt_thread_hook<(sizeof(bytes) > 0)>::begin();
        call(args, std::index_sequence_for<Args...>{});
    }
    static constexpr simt_entry entry(const char *name)
    {
        return {name, run, sizeof...(Args), bytes};
    }
};

/* Defined by the linker when the section exists. */
extern "C" unsigned char __start_simt_shared[] __attribute__((weak, visibility("hidden")));
extern "C" unsigned char __stop_simt_shared[] __attribute__((weak, visibility("hidden")));

constexpr uint32_t simt_abi_version = SIMT_ABI_VERSION;
#ifdef SIMT_TRACE
/* The instrumentation announces calls that do not return; nothing here needs to know. */
extern "C" __attribute__((weak, visibility("hidden"), no_sanitize("kernel-address"))) void
__asan_handle_no_return(void)
{
}
constexpr uint32_t simt_traced = 1;
#else
constexpr uint32_t simt_traced = 0;
#endif

#endif
