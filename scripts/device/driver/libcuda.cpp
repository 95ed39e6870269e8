// A stand-in for the CUDA driver, libcuda.so.1, on a machine without a GPU. NVIDIA's own Python packages call it.
//
// Device memory lies on the host, between guards and filled with 0xff until somebody writes to it. Work on a stream runs
// late, when somebody waits for the stream, because on a GPU nothing else is promised. Kernels are those that
// `trnqc.jit.emulator` has compiled of the same text. What a real driver would answer by an error code is answered so;
// what would corrupt memory is kept as a fault, which `hook.py` turns into an error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../../../trnqc/jit/emulator/launch.h"

using Status = int;
using Address = unsigned long long;
#define API extern "C" __attribute__((visibility("default"))) Status
// CUresult of cuda.h.
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
       NO_BINARY_FOR_GPU = 209, ILLEGAL_STATE = 401, NOT_FOUND = 500, LAUNCH_OUT_OF_RESOURCES = 701, CAPTURE_UNSUPPORTED = 900,
       CAPTURE_MERGE = 902, CAPTURE_UNJOINED = 904 };

namespace {

// What one GPU is, an H100, and how many there are.
constexpr int DEVICES = 2, CAPABILITY = 90, MULTIPROCESSORS = 4, MOST_THREADS = 1024, SHARED_BYTES = 48 * 1024;
constexpr size_t MEMORY = size_t(1) << 32, GUARD = 512, ALIGNMENT = 512;
constexpr unsigned char UNWRITTEN = 0xff, GUARDED = 0x7f;

// What is captured, in the order in which it was: an order that all dependencies allow.
struct Graph {
    std::vector<std::function<void()>> work;
};
struct Stream {
    int device;
    // Whether it does not wait for the legacy default stream, nor that one for it.
    bool independent;
    std::deque<std::function<void()>> work;
    // The graph that this stream captures, and whether no other stream has waited for the last of its work.
    Graph *graph = nullptr;
    bool unjoined = false;
};
struct Event {
    Stream *stream = nullptr;
    Graph *graph = nullptr;
};
struct Array {
    size_t bytes;
    int device;
};
struct Kernel {
    std::string name;
    void (*body)(void **);
    char *shared, *image;
    int64_t shared_bytes, image_bytes;
    int parameters, threads, stack;
    // Bytes of each parameter.
    std::vector<int> sizes;
};

std::recursive_mutex guard;
std::map<Address, Array> arrays;
std::set<Stream *> streams;
Stream legacy[DEVICES];
size_t used[DEVICES];
unsigned long long kept;
char contexts[DEVICES], pools[DEVICES];
std::vector<std::string> faults;
thread_local void *context;
thread_local std::vector<void *> contexts_below;
int (*run)(EmulatorLaunch *);
// Fills in a kernel of a cubin by its name; returns whether there is one.
void *(*load)(const void *code);
int (*find)(void *library, const char *name);
std::map<std::string, Kernel *> kernels;

// The device of the calling thread; the first one where it has not chosen any.
int current() { return context ? int((char *)context - contexts) : 0; }

void fault(const std::string &text) {
    std::lock_guard<std::recursive_mutex> lock(guard);
    faults.push_back(text);
}

// The array that contains some bytes of the memory of a device, or else a fault.
void require(Address address, size_t bytes, const char *what) {
    auto after = arrays.upper_bound(address);
    if (after != arrays.begin()) {
        auto it = std::prev(after);
        if (address + bytes <= it->first + it->second.bytes) return;
    }
    fault(std::string(what) + " of " + std::to_string(bytes) + " bytes outside of all arrays");
}

void drain(Stream &stream) {
    while (!stream.work.empty()) {
        auto work = std::move(stream.work.front());
        stream.work.pop_front();
        work();
    }
}

void drain_with_legacy(int device) {
    drain(legacy[device]);
    for (Stream *s : streams)
        if (s->device == device && !s->independent) drain(*s);
}

Stream &stream_of(void *handle) {
    // CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are 1 and 2.
    return uintptr_t(handle) <= 2 ? legacy[current()] : *(Stream *)handle;
}

void queue(void *handle, std::function<void()> work) {
    Stream &stream = stream_of(handle);
    if (stream.graph) return stream.unjoined = true, stream.graph->work.push_back(std::move(work));
    if (&stream == &legacy[stream.device]) drain_with_legacy(stream.device);
    stream.work.push_back(std::move(work));
}

Status allocate(Address *out, size_t bytes) {
    std::lock_guard<std::recursive_mutex> lock(guard);
    if (!context) return INVALID_CONTEXT;
    size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + 2 * GUARD;
    char *memory = used[current()] + bytes > MEMORY ? nullptr : (char *)aligned_alloc(ALIGNMENT, whole);
    if (!memory) return OUT_OF_MEMORY;
    memset(memory, GUARDED, whole);
    memset(memory + GUARD, UNWRITTEN, bytes);
    *out = Address(memory + GUARD);
    arrays[*out] = Array{bytes, current()};
    used[current()] += bytes;
    return SUCCESS;
}

void give_back(Address address) {
    auto it = arrays.find(address);
    if (it == arrays.end()) return fault("an address that was not allocated, or freed already, is freed");
    char *memory = (char *)address - GUARD;
    for (size_t n = 0; n < GUARD; n++)
        if (memory[n] != GUARDED || memory[GUARD + it->second.bytes + n] != GUARDED) {
            fault("the memory beside an array was written");
            break;
        }
    used[it->second.device] -= it->second.bytes;
    arrays.erase(it);
    free(memory);
}

void execute(Kernel *kernel, int64_t blocks, int threads, std::vector<uint64_t> values) {
    std::vector<void *> arguments;
    for (auto &value : values) arguments.push_back(&value);
    std::vector<EmulatorArray> known;
    for (auto &[address, array] : arrays) known.push_back({(char *)address, (int64_t)array.bytes, nullptr});
    EmulatorLaunch launch{};
    launch.body = kernel->body, launch.arguments = arguments.data(), launch.blocks = blocks, launch.threads = threads;
    launch.shared = kernel->shared, launch.shared_bytes = kernel->shared_bytes;
    launch.image = kernel->image, launch.image_bytes = kernel->image_bytes;
    launch.arrays = known.data(), launch.array_count = (int)known.size();
    int status = run(&launch);
    for (int n = 0; n < status; n++) fault(kernel->name + ": " + launch.texts[n]);
}

Status start(Kernel *kernel, const unsigned (&grid)[3], const unsigned (&block)[3], void *stream, void **parameters) {
    std::lock_guard<std::recursive_mutex> lock(guard);
    if (!context) return INVALID_CONTEXT;
    if (!grid[0] || grid[0] > 0x7fffffffu || grid[1] != 1 || grid[2] != 1 || block[1] != 1 || block[2] != 1) return INVALID_VALUE;
    if (!block[0] || (int)block[0] > kernel->threads) return LAUNCH_OUT_OF_RESOURCES;
    // Arguments are copied when a kernel is launched, not when it runs.
    std::vector<uint64_t> values(kernel->parameters);
    for (int n = 0; n < kernel->parameters; n++) memcpy(&values[n], parameters[n], kernel->sizes[n]);
    queue(stream, [=] { execute(kernel, grid[0], (int)block[0], values); });
    return SUCCESS;
}

} // namespace

#define LOCK std::lock_guard<std::recursive_mutex> lock_(guard)

// For hook.py.
extern "C" __attribute__((visibility("default"))) void standin_set(void *runner, void *loader, void *finder) {
    run = (int (*)(EmulatorLaunch *))runner, load = (void *(*)(const void *))loader, find = (int (*)(void *, const char *))finder;
    for (int n = 0; n < DEVICES; n++) legacy[n].device = n;
}
extern "C" __attribute__((visibility("default"))) void standin_kernel(const char *key, const char *name, void *body, void **places,
                                                                      int parameters, const int *sizes, int threads, int stack) {
    LOCK;
    char *shared = (char *)places[0], *image = (char *)places[2];
    kernels[key] = new Kernel{name, (void (*)(void **))body, shared, image, (char *)places[1] - shared, (char *)places[3] - image,
                              parameters, threads, stack, std::vector<int>(sizes, sizes + parameters)};
}
// Copies the next fault and forgets it; returns whether there is one.
extern "C" __attribute__((visibility("default"))) int standin_fault(char *out, int bytes) {
    LOCK;
    if (faults.empty()) return 0;
    snprintf(out, bytes, "%s", faults.front().c_str());
    faults.erase(faults.begin());
    return 1;
}
extern "C" __attribute__((visibility("default"))) void standin_queue(void *stream, void (*work)(void *), void *data) {
    LOCK;
    queue(stream, [=] { work(data); });
}
extern "C" __attribute__((visibility("default"))) void standin_require(const void *p, size_t bytes, const char *what) {
    LOCK;
    require(Address(p), bytes, what);
}

API cuInit(unsigned) { return SUCCESS; }
API cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
API cuDeviceGetCount(int *count) { return *count = DEVICES, SUCCESS; }
API cuDeviceGet(int *device, int n) { return n < 0 || n >= DEVICES ? INVALID_DEVICE : (*device = n, SUCCESS); }
API cuDeviceGetName(char *name, int bytes, int device) { return snprintf(name, bytes, "stand-in %d", device), SUCCESS; }
API cuDeviceGetUuid_v2(void *uuid, int device) { return memset(uuid, device, 16), SUCCESS; }
API cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = MEMORY, SUCCESS; }
API cuDeviceGetAttribute(int *value, int attribute, int) {
    // CUdevice_attribute of cuda.h: threads and shared bytes of a block, warp, multiprocessors, capability.
    std::map<int, int> known{{1, MOST_THREADS}, {8, SHARED_BYTES}, {10, 32}, {16, MULTIPROCESSORS}, {75, CAPABILITY / 10}, {76, CAPABILITY % 10}};
    auto it = known.find(attribute);
    return *value = it == known.end() ? 1 : it->second, SUCCESS;
}
API cuDevicePrimaryCtxRetain(void **out, int device) { return *out = contexts + device, SUCCESS; }
API cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
API cuDevicePrimaryCtxGetState(int, unsigned *flags, int *active) { return *flags = 0, *active = 1, SUCCESS; }
API cuCtxGetCurrent(void **out) { return *out = context, SUCCESS; }
API cuCtxSetCurrent(void *to) { return context = to, SUCCESS; }
API cuCtxPushCurrent_v2(void *to) { return contexts_below.push_back(context), context = to, SUCCESS; }
API cuCtxPopCurrent_v2(void **out) {
    if (out) *out = context;
    context = contexts_below.empty() ? nullptr : contexts_below.back();
    if (!contexts_below.empty()) contexts_below.pop_back();
    return SUCCESS;
}
API cuCtxGetDevice(int *device) { return context ? (*device = current(), SUCCESS) : INVALID_CONTEXT; }
API cuCtxGetDevice_v2(int *device, void *of) {
    if (!of && !context) return INVALID_CONTEXT;
    return *device = of ? int((char *)of - contexts) : current(), SUCCESS;
}
API cuCtxGetId(void *of, unsigned long long *id) {
    if (!of && !context) return INVALID_CONTEXT;
    return *id = 1 + (of ? int((char *)of - contexts) : current()), SUCCESS;
}
API cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, SUCCESS; }
API cuCtxSynchronize() {
    LOCK;
    for (Stream *s : streams) if (s->device == current()) drain(*s);
    return drain(legacy[current()]), SUCCESS;
}
API cuStreamCreateWithPriority(void **out, unsigned flags, int) {
    LOCK;
    if (!context) return INVALID_CONTEXT;
    auto *s = new Stream{current(), (flags & 1) != 0};
    return streams.insert(s), *out = s, SUCCESS;
}
API cuStreamCreate(void **out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
API cuStreamDestroy_v2(void *s) {
    LOCK;
    if (uintptr_t(s) > 2) drain(*(Stream *)s), streams.erase((Stream *)s);
    return SUCCESS;
}
API cuStreamSynchronize(void *s) {
    LOCK;
    if (!context) return INVALID_CONTEXT;
    if (uintptr_t(s) <= 2) drain_with_legacy(current()); else drain(*(Stream *)s);
    return SUCCESS;
}
API cuStreamGetCtx(void *s, void **out) { return *out = contexts + stream_of(s).device, SUCCESS; }
API cuStreamGetCtx_v2(void *s, void **out, void **green) { return *out = contexts + stream_of(s).device, green ? (*green = nullptr, SUCCESS) : SUCCESS; }
API cuStreamGetDevice(void *s, int *device) { return *device = stream_of(s).device, SUCCESS; }
API cuStreamGetFlags(void *s, unsigned *flags) { return *flags = stream_of(s).independent, SUCCESS; }
API cuStreamGetPriority(void *, int *priority) { return *priority = 0, SUCCESS; }
// CUstreamCaptureStatus of cuda.h: active is 1.
API cuStreamIsCapturing(void *s, int *is) { LOCK; return *is = stream_of(s).graph != nullptr, SUCCESS; }
API cuStreamGetCaptureInfo_v3(void *s, int *is, unsigned long long *id, void **graph, void ***nodes, void **edges, size_t *count) {
    LOCK;
    Graph *captured = stream_of(s).graph;
    *is = captured != nullptr;
    if (id) *id = uintptr_t(captured);
    if (graph) *graph = captured;
    if (nodes) *nodes = nullptr;
    if (edges) *edges = nullptr;
    if (count) *count = 0;
    return SUCCESS;
}
API cuStreamGetCaptureInfo_v2(void *s, int *is, unsigned long long *id, void **graph, void ***nodes, size_t *count) {
    return cuStreamGetCaptureInfo_v3(s, is, id, graph, nodes, nullptr, count);
}
API cuStreamBeginCapture_v2(void *s, int) {
    LOCK;
    Stream &stream = stream_of(s);
    if (uintptr_t(s) <= 2 || stream.graph) return CAPTURE_UNSUPPORTED;
    return stream.graph = new Graph, stream.unjoined = false, SUCCESS;
}
API cuStreamEndCapture(void *s, void **out) {
    LOCK;
    Graph *graph = stream_of(s).graph;
    if (!graph) return ILLEGAL_STATE;
    Status status = SUCCESS;
    for (Stream *other : streams)
        if (other->graph == graph) {
            if (other != s && other->unjoined) status = CAPTURE_UNJOINED;
            other->graph = nullptr;
        }
    // A graph that failed is left where it is, because bindings may still hold it.
    if (status) graph = nullptr;
    return *out = graph, status;
}
API cuGraphInstantiateWithParams(void **out, void *graph, void *) { LOCK; return *out = new Graph(*(Graph *)graph), SUCCESS; }
API cuGraphInstantiateWithFlags(void **out, void *graph, unsigned long long) { return cuGraphInstantiateWithParams(out, graph, nullptr); }
API cuGraphLaunch(void *graph, void *s) {
    LOCK;
    auto work = ((Graph *)graph)->work;
    return queue(s, [=] { for (auto &each : work) each(); }), SUCCESS;
}
// What cuda-core lets a graph own is never freed.
API cuUserObjectCreate(void **out, void *owned, ...) { return *out = owned, SUCCESS; }
API cuUserObjectRelease(void *, unsigned) { return SUCCESS; }
API cuGraphRetainUserObject(void *, ...) { return SUCCESS; }
API cuGraphReleaseUserObject(void *, ...) { return SUCCESS; }
API cuGraphDestroy(void *graph) { return delete (Graph *)graph, SUCCESS; }
API cuGraphExecDestroy(void *graph) { return delete (Graph *)graph, SUCCESS; }
API cuStreamGetId(void *s, unsigned long long *id) { return *id = uintptr_t(s), SUCCESS; }
API cuEventCreate(void **out, unsigned) { return *out = new Event, SUCCESS; }
API cuEventDestroy_v2(void *event) { return delete (Event *)event, SUCCESS; }
API cuEventRecord(void *event, void *s) {
    LOCK;
    Stream &stream = stream_of(s);
    *(Event *)event = Event{&stream, stream.graph};
    if (!stream.graph) drain(stream);
    return SUCCESS;
}
API cuEventSynchronize(void *) { return SUCCESS; }
API cuEventQuery(void *) { return SUCCESS; }
API cuStreamWaitEvent(void *s, void *event, unsigned) {
    LOCK;
    // All work before an event has run already, unless it is captured. Then this stream takes part in the capture.
    Event &e = *(Event *)event;
    if (!e.graph) return SUCCESS;
    if (stream_of(s).graph && stream_of(s).graph != e.graph) return CAPTURE_MERGE;
    return stream_of(s).graph = e.graph, e.stream->unjoined = false, SUCCESS;
}

API cuDeviceGetMemPool(void **pool, int device) { return *pool = pools + device, SUCCESS; }
API cuDeviceGetDefaultMemPool(void **pool, int device) { return *pool = pools + device, SUCCESS; }
API cuMemGetMemPool(void **pool, ...) { return *pool = pools, SUCCESS; }
API cuMemGetDefaultMemPool(void **pool, ...) { return *pool = pools, SUCCESS; }
API cuMemPoolTrimTo(void *, size_t) { return SUCCESS; }
API cuMemPoolSetAccess(void *, ...) { return SUCCESS; }
API cuMemPoolGetAccess(int *flags, ...) { return *flags = 3, SUCCESS; }
API cuMemPoolSetAttribute(void *, int attribute, void *value) { return attribute == 4 ? (kept = *(unsigned long long *)value, SUCCESS) : SUCCESS; }
API cuMemPoolGetAttribute(void *pool, int attribute, void *value) {
    LOCK;
    // CUmemPool_attribute of cuda.h: three switches, the bytes that a pool keeps, then bytes reserved and used.
    if (attribute <= 3) return *(int *)value = 1, SUCCESS;
    size_t bytes = attribute == 4 ? kept : used[(char *)pool - pools];
    return *(unsigned long long *)value = bytes, SUCCESS;
}
API cuMemAllocFromPoolAsync(Address *out, size_t bytes, void *, void *) { return allocate(out, bytes); }
API cuMemAllocAsync(Address *out, size_t bytes, void *) { return allocate(out, bytes); }
API cuMemAlloc_v2(Address *out, size_t bytes) { return allocate(out, bytes); }
API cuMemFreeAsync(Address address, void *s) { LOCK; return queue(s, [=] { give_back(address); }), SUCCESS; }
API cuMemFree_v2(Address address) { LOCK; return cuCtxSynchronize(), give_back(address), SUCCESS; }
API cuMemGetInfo_v2(size_t *left, size_t *total) { LOCK; return context ? (*left = MEMORY - used[current()], *total = MEMORY, SUCCESS) : INVALID_CONTEXT; }
API cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void *s) {
    LOCK;
    return queue(s, [=] { require(to, bytes, "memset"), memset((void *)to, value, bytes); }), SUCCESS;
}
API cuMemcpyHtoD_v2(Address to, const void *from, size_t bytes) {
    LOCK;
    if (!context) return INVALID_CONTEXT;
    return drain_with_legacy(current()), require(to, bytes, "copy from the host"), memcpy((void *)to, from, bytes), SUCCESS;
}
API cuMemcpyDtoH_v2(void *to, Address from, size_t bytes) {
    LOCK;
    if (!context) return INVALID_CONTEXT;
    return drain_with_legacy(current()), require(from, bytes, "copy to the host"), memcpy(to, (void *)from, bytes), SUCCESS;
}
API cuMemHostAlloc(void **out, size_t bytes, unsigned) { return context ? (*out = malloc(bytes), SUCCESS) : INVALID_CONTEXT; }
API cuMemFreeHost(void *memory) { return free(memory), SUCCESS; }
// The host's memory is read and written when the work runs, so that a piece that is used again too early is a wrong one.
API cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, void *s) {
    LOCK;
    if (!context) return INVALID_CONTEXT;
    return queue(s, [=] { require(to, bytes, "copy from the host"), memcpy((void *)to, from, bytes); }), SUCCESS;
}
API cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, void *s) {
    LOCK;
    if (!context) return INVALID_CONTEXT;
    return queue(s, [=] { require(from, bytes, "copy to the host"), memcpy(to, (void *)from, bytes); }), SUCCESS;
}
API cuMemcpyAsync(Address to, Address from, size_t bytes, void *s) { LOCK; return queue(s, [=] { memcpy((void *)to, (void *)from, bytes); }), SUCCESS; }
API cuPointerGetAttribute(void *out, int attribute, Address) { return *(int *)out = attribute == 2 ? 2 : 0, SUCCESS; }
API cuPointerGetAttributes(unsigned count, int *attributes, void **out, Address) {
    // CUpointer_attribute of cuda.h: the kind of memory is that of a device, its number and "managed" are zero.
    for (unsigned n = 0; n < count; n++)
        if (attributes[n] == 2 || attributes[n] == 8 || attributes[n] == 9) *(int *)out[n] = attributes[n] == 2 ? 2 : 0;
        else *(void **)out[n] = nullptr;
    return SUCCESS;
}

API cuLibraryLoadData(void **out, const void *code, ...) { return (*out = load(code)) ? SUCCESS : NO_BINARY_FOR_GPU; }
API cuLibraryUnload(void *) { return SUCCESS; }
API cuLibraryGetKernel(void **out, void *library, const char *name) {
    if (!find(library, name)) return NOT_FOUND;
    LOCK;
    return *out = kernels[std::to_string(uintptr_t(library)) + " " + name], SUCCESS;
}
API cuLibraryGetKernelCount(unsigned *count, void *) { return *count = 1, SUCCESS; }
API cuKernelGetLibrary(void **out, void *) { return *out = (void *)1, SUCCESS; }
API cuKernelGetFunction(void **out, void *kernel) { return *out = kernel, SUCCESS; }
API cuKernelGetAttribute(int *value, int attribute, void *kernel, int) {
    // CUfunction_attribute of cuda.h: threads of a block, shared and local bytes.
    auto &k = *(Kernel *)kernel;
    return *value = attribute == 0 ? k.threads : attribute == 1 ? (int)k.shared_bytes : attribute == 3 ? k.stack : 0, SUCCESS;
}
API cuFuncGetAttribute(int *value, int attribute, void *kernel) { return cuKernelGetAttribute(value, attribute, kernel, 0); }
API cuKernelGetParamInfo(void *kernel, size_t n, size_t *offset, size_t *bytes) {
    auto &k = *(Kernel *)kernel;
    if ((int)n >= k.parameters) return INVALID_VALUE;
    return *offset = 8 * n, *bytes = k.sizes[n], SUCCESS;
}
API cuFuncGetParamInfo(void *kernel, size_t n, size_t *offset, size_t *bytes) { return cuKernelGetParamInfo(kernel, n, offset, bytes); }
// As if each thread had 255 registers, of which 256 threads fill a multiprocessor.
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int threads, size_t) {
    return *blocks = threads > MOST_THREADS ? 0 : threads > 256 ? 1 : 256 / threads, SUCCESS;
}

struct LaunchConfig {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned count;
};
API cuLaunchKernelEx(const LaunchConfig *c, void *kernel, void **parameters, void **) { return start((Kernel *)kernel, c->grid, c->block, c->stream, parameters); }
API cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, void *s, void **parameters, void **) {
    return start((Kernel *)kernel, {gx, gy, gz}, {bx, by, bz}, s, parameters);
}

API cuGetErrorName(Status status, const char **out) {
    static thread_local char text[40];
    return snprintf(text, sizeof text, "CUDA_ERROR_%d", status), *out = text, SUCCESS;
}
API cuGetErrorString(Status status, const char **out) { return cuGetErrorName(status, out); }

// Bindings look up functions by this one. Most names are without the version; a few functions have two of them, with
// different arguments, of which the plain name is the older one.
API cuGetProcAddress_v2(const char *name, void **out, int, unsigned long long, int *found) {
    static void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    *out = nullptr;
    for (const char *version : {"", "_v2", "_v3"})
        if (!*out) *out = dlsym(self ? self : RTLD_DEFAULT, (std::string(name) + version).c_str());
    if (found) *found = !*out;
    return *out ? SUCCESS : NOT_FOUND;
}
API cuGetProcAddress(const char *name, void **out, int version, unsigned long long flags) { return cuGetProcAddress_v2(name, out, version, flags, nullptr); }
