/* Faults of a kernel and the watchdog. The handler notes what happened and lets the interrupted
 * thread go on at code that leaves it for good: nothing jumps out of a handler. */
#include "run.h"

#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define WATCHDOG_SIGNAL SIGVTALRM
/* A watchdog that finds the process inside the runtime asks it to stop at the next switch and looks
 * again after this long; after TRIES it breaks the thread off wherever it is. */
#define RETRY_NS 10000000
#define TRIES 100

static const int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
#define N_FAULTS (sizeof fault_signals / sizeof *fault_signals)

static struct sigaction old_actions[N_FAULTS], old_watchdog;
static stack_t old_stack;
static timer_t timer;
static pid_t timer_owner;
static int tries;
static _Alignas(16) unsigned char handler_stack[64 * 1024], landing_stack[64 * 1024];

SIMT_NO_ASAN void simt_break_off(void)
{
    simt_run.in_fiber = false;
    simt_fiber_abandon(&simt_main_fiber);
}

/* Where a broken-off thread goes on, on a stack of its own: its own may be what overflowed. */
SIMT_NO_ASAN static void landing(void)
{
    simt_break_off();
}

static void divert(ucontext_t *context, int signal)
{
    greg_t *registers = context->uc_mcontext.gregs;

    simt_run.failure = SIMT_SIGNAL;
    simt_run.fault.signal = signal;
    simt_run.failure_site = (uintptr_t)registers[REG_RIP];
    simt_run.site_is_return = false;
    /* As after a call: the stack is 8 off a multiple of 16. */
    registers[REG_RSP] = (greg_t)((uintptr_t)landing_stack + sizeof landing_stack - 8);
    registers[REG_RIP] = (greg_t)(uintptr_t)landing;
    registers[REG_EFL] &= ~(greg_t)0x400; /* the direction flag, clear at every call */
}

static void on_fault(int signal, siginfo_t *info, void *opaque)
{
    ucontext_t *context = opaque;

    if (!simt_run.in_fiber || simt_run.failure != SIMT_FINE) {
        /* Not the kernel's doing: whoever handled it before shall see it again. */
        simt_signals_disarm();
        return;
    }
    simt_run.fault.code = info->si_code;
    simt_run.fault.address = (uintptr_t)info->si_addr;
    simt_run.fault.write = context->uc_mcontext.gregs[REG_ERR] & 2;
    divert(context, signal);
}

static void on_watchdog(int signal, siginfo_t *info, void *opaque)
{
    ucontext_t *context = opaque;
    uintptr_t at = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    const struct gpu_module *module = simt_run.module;

    simt_run.expired = 1;
    if (!simt_run.in_fiber || simt_run.failure != SIMT_FINE) return;
    if ((at >= module->image_begin && at < module->image_end) || ++tries >= TRIES)
        divert(context, signal);
}

/* Processor time of the launching thread: a machine that is busy elsewhere makes no hangs. */
static bool start_timer(uint32_t watchdog_ms)
{
    struct itimerspec spec = {{0, RETRY_NS}, {watchdog_ms / 1000, watchdog_ms % 1000 * 1000000L}};

    if (timer_owner != gettid()) {
        struct sigevent event;

        memset(&event, 0, sizeof event);
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = WATCHDOG_SIGNAL;
        event._sigev_un._tid = gettid();
        if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return false;
        timer_owner = gettid();
    }
    return timer_settime(timer, 0, &spec, NULL) == 0;
}

bool simt_signals_arm(uint32_t watchdog_ms)
{
    struct sigaction action;
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};

    memset(&action, 0, sizeof action);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, WATCHDOG_SIGNAL);
    action.sa_sigaction = on_fault;
    tries = 0;
    if (sigaltstack(&stack, &old_stack) != 0) return false;
    for (size_t i = 0; i < N_FAULTS; i++) sigaction(fault_signals[i], &action, &old_actions[i]);
    action.sa_flags |= SA_RESTART;
    action.sa_sigaction = on_watchdog;
    sigaction(WATCHDOG_SIGNAL, &action, &old_watchdog);
    if (start_timer(watchdog_ms)) return true;
    simt_signals_disarm();
    return false;
}

void simt_signals_disarm(void)
{
    struct itimerspec never = {{0, 0}, {0, 0}};

    if (timer_owner == gettid()) timer_settime(timer, 0, &never, NULL);
    sigaction(WATCHDOG_SIGNAL, &old_watchdog, NULL);
    for (size_t i = 0; i < N_FAULTS; i++) sigaction(fault_signals[i], &old_actions[i], NULL);
    sigaltstack(&old_stack, NULL);
}
