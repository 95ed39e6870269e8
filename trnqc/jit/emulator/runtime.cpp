// Runs a kernel: blocks one after the other, each thread of a block as a fibre that runs until a barrier, a shuffle or
// its end. In a build with checks the compiler calls the functions __tsan_* before each access to memory, and
// __ubsan_* where an index is outside of a declared array; here they find races, and accesses outside of all arrays.
//
// Nothing here depends on how threads of a real GPU overlap: two accesses conflict if no barrier orders them.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "launch.h"

namespace {

constexpr int MOST_THREADS = 1024, WARP = 32;
constexpr size_t STACK = size_t(1) << 20;
// The bytes of memory that share one record of accesses.
constexpr int GRAIN = 4;

enum State { READY, AT_BARRIER, IN_SHUFFLE, ENDED };
enum Access { READ, WRITE, ATOMIC };

struct Fibre {
    char *stack;
    ucontext_t first;
    jmp_buf here;
    State state;
    bool started;
    const void *place;
    int barrier;
};

} // namespace

// Who accessed some bytes last: the thread, its block, and how many barriers the block had passed. A block of 0 is nobody.
struct Who {
    int64_t block;
    int32_t epoch;
    int16_t thread;
    bool atomic;
};

struct EmulatorRecord {
    Who writer, reader;
    // Whether the bytes were also read by other blocks, and by other threads of the reader's block in its epoch.
    bool other_blocks, other_threads;
};

extern "C" {

struct EmulatorIndex {
    unsigned x;
};
EmulatorIndex emulator_thread, emulator_block;

}

namespace {

Fibre fibres[MOST_THREADS];
uint64_t exchanged[MOST_THREADS];
jmp_buf scheduler;
EmulatorLaunch *launch;
int64_t block_number;
int32_t epoch, current;
uint64_t random_state;
EmulatorArray shared_array;

// A write whose bytes another thread wrote without a barrier between them: harmless if the bytes stay the same, which is
// known at the next event.
struct {
    const char *address;
    int bytes;
    char before[16];
    const void *place;
} pending;

void report(const void *place, const char *text) {
    for (int n = 0; n < launch->reports; n++)
        if (launch->places[n] == place && !strcmp(launch->texts[n], text)) return;
    if (launch->reports == REPORTS) return;
    launch->places[launch->reports] = place;
    snprintf(launch->texts[launch->reports++], sizeof launch->texts[0], "%s", text);
}

// Leave the launch: what the kernel did cannot be followed by anything that makes sense.
[[noreturn]] void give_up() { _longjmp(scheduler, 2); }

void settle() {
    if (!pending.address) return;
    if (memcmp(pending.address, pending.before, pending.bytes))
        report(pending.place, "two threads write different numbers without a barrier between them");
    pending.address = nullptr;
}

bool unordered(const Who &who, bool shared) {
    if (!who.block) return false;
    if (who.block != block_number + 1) return !shared;
    return who.epoch == epoch && who.thread != current;
}

void write_record(EmulatorRecord &r, const char *p, int bytes, Access access, bool shared, const void *place) {
    bool atomic = access == ATOMIC, readers = r.reader.block && !shared && (r.other_blocks || r.reader.block != block_number + 1);
    readers |= r.reader.block == block_number + 1 && r.reader.epoch == epoch && (r.reader.thread != current || r.other_threads);
    if (readers)
        report(place, atomic ? "atomic addition to what another thread reads without a barrier between them"
                             : "write of what another thread reads without a barrier between them");
    if (unordered(r.writer, shared) && !(atomic && r.writer.atomic)) {
        if (atomic || r.writer.atomic)
            report(place, "an atomic addition and a plain write of two threads without a barrier between them");
        else if (!pending.address && bytes <= (int)sizeof pending.before) {
            pending.address = p, pending.bytes = bytes, pending.place = place;
            memcpy(pending.before, p, bytes);
        }
    }
    r.writer = Who{block_number + 1, epoch, (int16_t)current, atomic};
}

void read_record(EmulatorRecord &r, bool shared, const void *place) {
    if (unordered(r.writer, shared)) report(place, "read of what another thread writes without a barrier between them");
    Who &reader = r.reader;
    if (reader.block && reader.block != block_number + 1) r.other_blocks = true;
    if (reader.block != block_number + 1 || reader.epoch != epoch) {
        reader = Who{block_number + 1, epoch, (int16_t)current, false};
        r.other_threads = false;
    } else if (reader.thread != current)
        r.other_threads = true;
}

EmulatorArray *array_of(const char *p, int bytes) {
    if (p >= shared_array.begin && p < shared_array.begin + shared_array.bytes) return &shared_array;
    for (int n = 0; n < launch->array_count; n++) {
        EmulatorArray &a = launch->arrays[n];
        if (p >= a.begin && p + bytes <= a.begin + a.bytes) return &a;
    }
    return nullptr;
}

void check(const void *address, int bytes, Access access, const void *place) {
    if (!launch) return;
    settle();
    const char *p = (const char *)address, *stack = fibres[current].stack;
    if (p >= stack && p < stack + STACK) return;
    EmulatorArray *array = array_of(p, bytes);
    if (!array) {
        for (int t = 0; t < launch->threads; t++)
            if (p >= fibres[t].stack && p < fibres[t].stack + STACK) {
                report(place, "access to a local array of another thread");
                give_up();
            }
        if (access == READ && p >= launch->image && p + bytes <= launch->image + launch->image_bytes) return;
        char text[160];
        snprintf(text, sizeof text, "%s of %d bytes outside of all arrays", access == READ ? "read" : "write", bytes);
        report(place, text);
        give_up();
    }
    bool shared = array == &shared_array;
    if (!array->records) {
        array->records = (EmulatorRecord *)calloc(array->bytes / GRAIN + 1, sizeof(EmulatorRecord));
        if (!array->records) return;
    }
    for (int64_t n = (p - array->begin) / GRAIN; n <= (p + bytes - 1 - array->begin) / GRAIN; n++) {
        if (access == READ)
            read_record(array->records[n], shared, place);
        else
            write_record(array->records[n], p, bytes, access, shared, place);
    }
}

void leave(State state, const void *place) {
    settle();
    Fibre &f = fibres[current];
    f.state = state, f.place = place;
    if (!_setjmp(f.here)) _longjmp(scheduler, 1);
}

void fibre_main() {
    for (;;) {
        launch->body(launch->arguments);
        leave(ENDED, nullptr);
    }
}

// Give the fibre a stack, on which it begins at its first turn. Return false if there is no memory for it.
bool prepare(Fibre &f) {
    if (!f.stack) {
        void *memory = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return false;
        f.stack = (char *)memory;
    }
    if (!f.started) {
        getcontext(&f.first);
        f.first.uc_stack.ss_sp = f.stack, f.first.uc_stack.ss_size = STACK, f.first.uc_link = nullptr;
        makecontext(&f.first, fibre_main, 0);
    }
    return true;
}

// Let a thread run until it waits or ends. Return false if the launch is given up.
bool enter(int thread) {
    current = thread, emulator_thread.x = thread;
    Fibre &f = fibres[thread];
    int back = _setjmp(scheduler);
    if (back) return back == 1;
    if (f.started) _longjmp(f.here, 1);
    f.started = true;
    setcontext(&f.first);
    return false;
}

uint64_t draw() { return random_state = random_state * 6364136223846793005u + 1442695040888963407u; }

// The n-th of `count` numbers in the order of the launch, by a table of `count` numbers.
void arrange(int *table, int count) {
    for (int n = 0; n < count; n++) table[n] = launch->order == 1 ? count - 1 - n : n;
    if (launch->order > 1)
        for (int n = count - 1; n > 0; n--) {
            int m = (draw() >> 33) % (n + 1), swap = table[n];
            table[n] = table[m], table[m] = swap;
        }
}

int count(State state, int begin, int end) {
    int total = 0;
    for (int t = begin; t < end; t++) total += fibres[t].state == state;
    return total;
}

const void *place_of(State state, int threads) {
    for (int t = 0; t < threads; t++)
        if (fibres[t].state == state) return fibres[t].place;
    return nullptr;
}

// Let all go on that wait in a warp for a shuffle. Return whether any did.
bool finish_shuffles(int threads) {
    bool any = false;
    for (int w = 0; w < threads; w += WARP) {
        int end = w + WARP < threads ? w + WARP : threads, waiting = count(IN_SHUFFLE, w, end);
        if (!waiting) continue;
        if (waiting < end - w) {
            report(place_of(IN_SHUFFLE, threads), "shuffle that a part of the warp does not reach");
            return false;
        }
        any = true;
        for (int t = w; t < end; t++) fibres[t].state = READY;
    }
    return any;
}

// Let all threads pass a barrier. Return false if some do not reach it.
bool pass_barrier(int threads) {
    const void *place = place_of(AT_BARRIER, threads);
    int barrier = fibres[0].barrier;
    if (count(AT_BARRIER, 0, threads) < threads) {
        report(place, "barrier that a part of the block does not reach");
        return false;
    }
    for (int t = 0; t < threads; t++) {
        if (fibres[t].barrier != barrier) {
            report(place, "threads of a block that wait at different barriers");
            return false;
        }
        fibres[t].state = READY;
    }
    epoch++;
    return true;
}

// Run the block `block_number`. Return false if it cannot end.
bool run_block() {
    static int order[MOST_THREADS];
    int threads = launch->threads;
    epoch = 1;
    // Not a number, as nobody can know what a block finds in shared memory.
    if (launch->shared_bytes) memset(launch->shared, 0xff, launch->shared_bytes);
    for (int t = 0; t < threads; t++) fibres[t].state = READY;
    for (;;) {
        arrange(order, threads);
        for (int n = 0; n < threads; n++) {
            if (fibres[order[n]].state == READY && !enter(order[n])) return false;
        }
        if (count(ENDED, 0, threads) == threads) return true;
        if (count(IN_SHUFFLE, 0, threads)) {
            if (!finish_shuffles(threads)) return false;
        } else if (!pass_barrier(threads))
            return false;
    }
}

} // namespace

#define PLACE __builtin_return_address(0)

extern "C" {

void emulator_barrier(int number, const void *place) {
    fibres[current].barrier = number;
    leave(AT_BARRIER, place);
}

uint64_t emulator_shuffle(uint64_t bits, int n, const void *place) {
    exchanged[current] = bits;
    leave(IN_SHUFFLE, place);
    uint64_t other = exchanged[current ^ n];
    // Nobody may bring the next number before all have taken this one.
    leave(IN_SHUFFLE, place);
    return other;
}

void emulator_atomic(void *address, int bytes, const void *place) {
    if (launch->array_count) check(address, bytes, ATOMIC, place);
}

// Run a kernel. Return 0, -1 if there is no memory for the threads, or else the number of reports.
int emulator_run(EmulatorLaunch *what) {
    launch = what;
    launch->reports = 0;
    random_state = launch->order;
    pending.address = nullptr;
    shared_array = EmulatorArray{launch->shared, launch->shared_bytes, nullptr};
    bool fits = true;
    for (int t = 0; t < launch->threads; t++) fits = fits && prepare(fibres[t]);
    for (int64_t n = 0, skip = launch->order > 1 ? draw() >> 33 : 0; fits && n < launch->blocks; n++) {
        // A random order of blocks begins anywhere, goes to the end, and then from the first one on.
        block_number = launch->order == 1 ? launch->blocks - 1 - n : (n + skip) % launch->blocks;
        emulator_block.x = (unsigned)block_number;
        if (!run_block()) {
            // The fibres are somewhere in the kernel and begin anew at the next launch.
            for (int t = 0; t < launch->threads; t++) fibres[t].started = false;
            break;
        }
        settle();
    }
    free(shared_array.records);
    for (int n = 0; n < launch->array_count; n++) free(launch->arrays[n].records);
    launch = nullptr;
    return fits ? what->reports : -1;
}

#define ACCESSES(n)                                                                                  \
    void __tsan_read##n(void *p) { check(p, n, READ, PLACE); }                                       \
    void __tsan_write##n(void *p) { check(p, n, WRITE, PLACE); }                                     \
    void __tsan_unaligned_read##n(void *p) { check(p, n, READ, PLACE); }                             \
    void __tsan_unaligned_write##n(void *p) { check(p, n, WRITE, PLACE); }
ACCESSES(1) ACCESSES(2) ACCESSES(4) ACCESSES(8) ACCESSES(16)
void __tsan_read_range(void *p, unsigned long n) { check(p, (int)n, READ, PLACE); }
void __tsan_write_range(void *p, unsigned long n) { check(p, (int)n, WRITE, PLACE); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}

void __ubsan_handle_out_of_bounds_abort(void *, void *index) {
    char text[160];
    snprintf(text, sizeof text, "index %lld outside of a declared array", (long long)(intptr_t)index);
    report(PLACE, text);
    give_up();
}
}
