/* A CUDA device that computes nothing and records everything.
 *
 * It stands for libcuda, libcudart, libcublas, libcublasLt and NCCL below a CUDA build of PyTorch, so training
 * code runs unmodified on a machine without a GPU: device checks, dtypes, Inductor, Triton, ptxas, streams,
 * CUDA graphs, pinned copies, memory limits, several ranks. Preloaded as libcuda.so.1, its symbols come first.
 *
 *   memory       host memory of a limited size, zero at first; copies and memsets are done, kernels are not
 *   a kernel     is recorded with its grid; so are matrix products (shapes, leading dimensions, types)
 *   time         RECORDER_NS nanoseconds a kernel, on one queue of 1,024 kernels for the whole device
 *   refusals     what a device refuses: see REFUSALS below
 *
 * Settings, from the environment: RECORDER_GIB (memory of a device), RECORDER_DEVICES, RECORDER_CAPABILITY
 * (75, 80, 86, 89, 90), RECORDER_NS. Numbers that kernels would compute are whatever the memory holds, so
 * losses, metrics and speed mean nothing here. There is no cuDNN.
 */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define CUDA API cudaError_t
#define NO_BINARY 209 /* CUDA_ERROR_NO_BINARY_FOR_GPU */
#define NOT_SUPPORTED 801

static long setting(const char *name, long usual) { const char *v = getenv(name); return v ? atol(v) : usual; }
static long devices, capability, kernel_ns;
static size_t capacity;
static __attribute__((constructor)) void read_settings(void) {
  devices = setting("RECORDER_DEVICES", 1);
  capability = setting("RECORDER_CAPABILITY", 90);
  kernel_ns = setting("RECORDER_NS", 0);
  capacity = (size_t)setting("RECORDER_GIB", 80) << 30;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#define LOCKED(...) do { pthread_mutex_lock(&lock); __VA_ARGS__; pthread_mutex_unlock(&lock); } while (0)

/* ---------------------------------------------------------------- what a device is like */
typedef struct { int capability, processors, shared; const char *name; } Profile;
static const Profile PROFILES[] = {
  {75, 40, 65536, "Tesla T4"}, {80, 108, 166912, "NVIDIA A100-SXM4-80GB"}, {86, 72, 101376, "NVIDIA A10"},
  {89, 142, 101376, "NVIDIA L40S"}, {90, 132, 232448, "NVIDIA H100 80GB HBM3"}, {70, 80, 98304, "Tesla V100-SXM2-16GB"}};
static const Profile *profile(void) {
  for (size_t i = 0; i < sizeof PROFILES / sizeof *PROFILES; i++)
    if (PROFILES[i].capability == capability) return PROFILES + i;
  return PROFILES + 4;
}

/* ---------------------------------------------------------------- the record */
enum { LAUNCH, PRODUCT, COPY, MEMSET, WAIT_HOST, ALLOCATE, FREE, ALLOCATE_HOST, BEGIN_CAPTURE, END_CAPTURE,
       GRAPH, EVENT, WAIT_STREAM, VIOLATION, COLLECTIVE, KINDS };
static const char *KIND[] = {"launch", "product", "copy", "memset", "sync", "allocate", "free", "allocate_host",
  "begin_capture", "end_capture", "graph", "event", "stream_wait", "violation", "collective"};
#define VALUES 8
typedef struct { int kind, thread, device; long graph; const char *name; const void *stream; long v[VALUES]; } Entry;
static Entry *entries;
static size_t used_entries, room;
typedef void (*Callback)(int, const char *);
static Callback callback;
static unsigned callback_kinds;

typedef struct { long id, nodes; } Graph;
typedef struct { Graph *capture; int mode, priority, device; } Stream;
typedef struct { Graph *capture; int recorded, timed; long done; } Event;
static __thread int device_now;
static __thread cudaError_t last_error;
static Stream legacy[16];
static Stream *stream_of(const void *s) { return (uintptr_t)s < 16 ? &legacy[device_now & 15] : (Stream *)s; }
static Graph *capture_of(const void *s) { return stream_of(s)->capture; }

static void note(int kind, const char *name, const void *stream, int n, const long *values) {
  pthread_mutex_lock(&lock);
  if (used_entries == room) { room = room ? 2 * room : 1 << 14; entries = realloc(entries, room * sizeof *entries); }
  Graph *graph = capture_of(stream);
  Entry *e = &entries[used_entries++];
  *e = (Entry){kind, (int)syscall(SYS_gettid), device_now, graph ? graph->id : 0, name, stream, {0}};
  memcpy(e->v, values, n * sizeof(long));
  pthread_mutex_unlock(&lock);
  if (callback && callback_kinds >> kind & 1) callback(kind, name ? name : "");
}
#define NOTE(kind, name, stream, ...) do { long v_[] = {__VA_ARGS__}; note(kind, name, stream, sizeof v_ / sizeof *v_, v_); } while (0)

API void recorder_reset(void) { LOCKED(used_entries = 0); }
API void recorder_callback(Callback f, unsigned kinds) { callback = f; callback_kinds = kinds; }
API void recorder_dump(const char *path) {
  FILE *file = fopen(path, "w");
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < used_entries; i++) {
    Entry *e = entries + i;
    fprintf(file, "%s\t%s\t%p\t%d\t%d\t%ld", KIND[e->kind], e->name ? e->name : "", e->stream, e->thread, e->device, e->graph);
    for (int k = 0; k < VALUES; k++) fprintf(file, "\t%ld", e->v[k]);
    fputc('\n', file);
  }
  pthread_mutex_unlock(&lock);
  fclose(file);
}

/* ---------------------------------------------------------------- REFUSALS
 * in a capture: waiting for the device, allocating, pageable copies, work on the legacy stream, waiting for
 *   uncaptured events, ending with streams that have not joined; querying a stream or event that is captured
 * a launch with an empty or too large grid, block or shared memory
 * copies and memsets beyond an allocation, freeing what was not allocated, memory beyond the limit
 * code for another compute capability
 */
static cudaError_t error(cudaError_t e) { if (e) last_error = e; return e; }
static cudaError_t refuse(const char *what, cudaError_t e) { NOTE(VIOLATION, what, 0, e); return error(e); }
static int captures_of_all; /* in mode global */
static __thread int captures_of_thread, exchanged_mode;
static int capturing_here(void) {
  if (exchanged_mode == cudaStreamCaptureModeRelaxed) return 0;
  return captures_of_thread > 0 || (exchanged_mode == cudaStreamCaptureModeGlobal && captures_of_all > 0);
}
#define NOT_IN_CAPTURE(what) do { if (capturing_here()) return refuse(what, cudaErrorStreamCaptureUnsupported); } while (0)

/* ---------------------------------------------------------------- time */
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
static void sleep_until(long until) {
  long left = until - now();
  if (left > 0) { struct timespec t = {left / 1000000000L, left % 1000000000L}; nanosleep(&t, 0); }
}
#define QUEUE 1024
static long busy_until, queued[QUEUE];
static unsigned head;
static void work(long kernels) { /* the host waits while the queue is full */
  if (!kernel_ns) return;
  long full;
  LOCKED(full = queued[head]);
  sleep_until(full);
  LOCKED(long t = now(); if (busy_until < t) busy_until = t; busy_until += kernels * kernel_ns; queued[head] = busy_until; head = (head + 1) % QUEUE);
}
static void drain(void) { if (kernel_ns) sleep_until(busy_until); }

/* ---------------------------------------------------------------- streams and events */
CUDA cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
  Stream *x = calloc(1, sizeof *x); x->priority = priority; x->device = device_now; *s = (void *)x; return 0; }
CUDA cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { return cudaStreamCreateWithPriority(s, flags, 0); }
CUDA cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithPriority(s, 0, 0); }
CUDA cudaStreamDestroy(cudaStream_t s) { return 0; }
CUDA cudaStreamGetPriority(cudaStream_t s, int *p) { *p = stream_of(s)->priority; return 0; }
CUDA cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return 0; }
CUDA cudaStreamQuery(cudaStream_t s) {
  if (capture_of(s)) return refuse("query of a captured stream", cudaErrorStreamCaptureUnsupported);
  return kernel_ns && busy_until > now() ? cudaErrorNotReady : 0; }
CUDA cudaStreamSynchronize(cudaStream_t s) {
  if (capture_of(s)) return refuse("cudaStreamSynchronize in a capture", cudaErrorStreamCaptureUnsupported);
  NOTE(WAIT_HOST, "cudaStreamSynchronize", s, 0); drain(); return 0; }
CUDA cudaDeviceSynchronize(void) {
  NOT_IN_CAPTURE("cudaDeviceSynchronize in a capture"); NOTE(WAIT_HOST, "cudaDeviceSynchronize", 0, 0); drain(); return 0; }
CUDA cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
  Event *x = calloc(1, sizeof *x); x->timed = !(flags & cudaEventDisableTiming); *e = (void *)x; return 0; }
CUDA cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
CUDA cudaEventDestroy(cudaEvent_t e) { free(e); return 0; }
CUDA cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) {
  Event *x = (Event *)e; x->capture = capture_of(s); x->recorded = 1;
  long t = now(); x->done = busy_until > t ? busy_until : t;
  NOTE(EVENT, "cudaEventRecord", s, 0); return 0; }
CUDA cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return cudaEventRecordWithFlags(e, s, 0); }
CUDA cudaEventQuery(cudaEvent_t e) {
  NOT_IN_CAPTURE("cudaEventQuery in a capture");
  if (((Event *)e)->capture) return refuse("query of a captured event", cudaErrorCapturedEvent);
  return kernel_ns && ((Event *)e)->done > now() ? cudaErrorNotReady : 0; }
CUDA cudaEventSynchronize(cudaEvent_t e) {
  NOT_IN_CAPTURE("cudaEventSynchronize in a capture");
  NOTE(WAIT_HOST, "cudaEventSynchronize", 0, 0); if (kernel_ns) sleep_until(((Event *)e)->done); return 0; }
CUDA cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  Event *x = (Event *)a, *y = (Event *)b;
  if (!x->recorded || !y->recorded || !x->timed || !y->timed) return error(cudaErrorInvalidResourceHandle);
  *ms = (y->done - x->done) / 1e6f; return 0; }
CUDA cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
  Event *x = (Event *)e; Stream *stream = stream_of(s);
  if (x->capture && !stream->capture) { stream->capture = x->capture; stream->mode = -1; } /* joins the capture */
  else if (!x->capture && stream->capture && x->recorded)
    return refuse("a captured stream waits for an event outside its capture", cudaErrorStreamCaptureIsolation);
  NOTE(WAIT_STREAM, "cudaStreamWaitEvent", s, 0); return 0; }

/* ---------------------------------------------------------------- capture and graphs */
static long graphs;
CUDA cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
  if ((uintptr_t)s < 16) return refuse("capture of the legacy stream", cudaErrorStreamCaptureUnsupported);
  Stream *stream = stream_of(s);
  if (stream->capture) return refuse("capture of a stream that is captured", cudaErrorIllegalState);
  Graph *graph = calloc(1, sizeof *graph);
  graph->id = __sync_add_and_fetch(&graphs, 1);
  stream->capture = graph; stream->mode = mode;
  if (mode != cudaStreamCaptureModeRelaxed) captures_of_thread++;
  if (mode == cudaStreamCaptureModeGlobal) __sync_fetch_and_add(&captures_of_all, 1);
  static const char *MODE[] = {"global", "thread_local", "relaxed"};
  NOTE(BEGIN_CAPTURE, MODE[mode], s, graph->id); return 0; }
CUDA cudaStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t g, const cudaGraphNode_t *d, const cudaGraphEdgeData *e,
    size_t n, enum cudaStreamCaptureMode mode) { return cudaStreamBeginCapture(s, mode); }
CUDA cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
  Stream *stream = stream_of(s);
  if (!stream->capture || stream->mode < 0) return refuse("end of a capture that this stream did not begin", cudaErrorIllegalState);
  NOTE(END_CAPTURE, "", s, stream->capture->id, stream->capture->nodes);
  if (stream->mode != cudaStreamCaptureModeRelaxed) captures_of_thread--;
  if (stream->mode == cudaStreamCaptureModeGlobal) __sync_fetch_and_sub(&captures_of_all, 1);
  *g = (void *)stream->capture; stream->capture = 0; return 0; }
CUDA cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) { *status = capture_of(s) ? 1 : 0; return 0; }
CUDA cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *g,
    const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *n) {
  Graph *graph = capture_of(s); *status = graph ? 1 : 0;
  if (id) *id = graph ? graph->id : 0;
  if (g) *g = (void *)graph;
  if (nodes) *nodes = 0;
  if (edges) *edges = 0;
  if (n) *n = 0;
  return 0; }
CUDA cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t *d, const cudaGraphEdgeData *e, size_t n, unsigned f) { return 0; }
CUDA cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { int old = exchanged_mode; exchanged_mode = *mode; *mode = old; return 0; }
CUDA cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long f) {
  Graph *copy = malloc(sizeof *copy); *copy = *(Graph *)g; *x = (void *)copy; return 0; }
CUDA cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long f) { return cudaGraphInstantiateWithFlags(x, g, f); }
CUDA cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
  Graph *graph = (Graph *)x; NOTE(GRAPH, "", s, graph->id, graph->nodes); work(graph->nodes); return 0; }
CUDA cudaGraphDestroy(cudaGraph_t g) { return 0; }
CUDA cudaGraphExecDestroy(cudaGraphExec_t g) { return 0; }
CUDA cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) { if (!nodes) *n = ((Graph *)g)->nodes; return 0; }
CUDA cudaGraphNodeGetDependencies(cudaGraphNode_t n, cudaGraphNode_t *d, cudaGraphEdgeData *e, size_t *count) { *count = 0; return 0; }
CUDA cudaGraphDebugDotPrint(cudaGraph_t g, const char *path, unsigned f) { return 0; }
CUDA cudaGraphAddNode(cudaGraphNode_t *n, cudaGraph_t g, const cudaGraphNode_t *d, const cudaGraphEdgeData *e, size_t k,
    struct cudaGraphNodeParams *p) { return error(NOT_SUPPORTED); }
CUDA cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *h, cudaGraph_t g, unsigned v, unsigned f) { return error(NOT_SUPPORTED); }
CUDA cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data) { f(data); return 0; }
CUDA cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void *data, unsigned flags) { f(s, 0, data); return 0; }
static int captured(const void *s) { /* counts a node of the stream's graph, if there is one */
  Graph *graph = capture_of(s); if (graph) graph->nodes++; return graph != 0; }

/* ---------------------------------------------------------------- memory */
typedef struct { char *begin; size_t size; int device; } Area; /* device -1: pinned */
static Area *areas;
static size_t used_areas, room_areas, used_bytes[16];
static void *take(size_t size, int device) {
  size_t pages = (size + 4095) & ~4095ul;
  void *p = mmap(0, pages ? pages : 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return 0;
  pthread_mutex_lock(&lock);
  if (used_areas == room_areas) { room_areas = room_areas ? 2 * room_areas : 256; areas = realloc(areas, room_areas * sizeof *areas); }
  areas[used_areas++] = (Area){p, pages ? pages : 4096, device};
  if (device >= 0) used_bytes[device] += pages;
  pthread_mutex_unlock(&lock);
  return p;
}
static cudaError_t give_back(void *p, int pinned) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < used_areas; i++)
    if (areas[i].begin == p && (areas[i].device < 0) == pinned) {
      munmap(p, areas[i].size);
      if (!pinned) used_bytes[areas[i].device] -= areas[i].size;
      areas[i] = areas[--used_areas];
      pthread_mutex_unlock(&lock);
      return 0;
    }
  pthread_mutex_unlock(&lock);
  return refuse("free of what was not allocated", cudaErrorInvalidValue);
}
enum { PAGEABLE = -2, PINNED = -1 }; /* else a device */
static int place(const void *p, size_t *left) {
  int found = PAGEABLE;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < used_areas; i++)
    if ((char *)p >= areas[i].begin && (char *)p < areas[i].begin + areas[i].size) {
      found = areas[i].device;
      if (left) *left = areas[i].begin + areas[i].size - (char *)p;
      break;
    }
  pthread_mutex_unlock(&lock);
  return found;
}
CUDA cudaMalloc(void **p, size_t size) {
  NOT_IN_CAPTURE("cudaMalloc in a capture");
  if (used_bytes[device_now] + size > capacity) return error(cudaErrorMemoryAllocation);
  if (!(*p = take(size, device_now))) return error(cudaErrorMemoryAllocation);
  NOTE(ALLOCATE, "cudaMalloc", 0, size); return 0; }
CUDA cudaMallocAsync(void **p, size_t size, cudaStream_t s) { return cudaMalloc(p, size); }
CUDA cudaFree(void *p) {
  if (!p) return 0;
  NOT_IN_CAPTURE("cudaFree in a capture"); NOTE(FREE, "cudaFree", 0, 0); return give_back(p, 0); }
CUDA cudaFreeAsync(void *p, cudaStream_t s) { return cudaFree(p); }
CUDA cudaHostAlloc(void **p, size_t size, unsigned flags) {
  NOT_IN_CAPTURE("cudaHostAlloc in a capture");
  *p = take(size, PINNED); NOTE(ALLOCATE_HOST, "cudaHostAlloc", 0, size); return 0; }
CUDA cudaMallocHost(void **p, size_t size) { return cudaHostAlloc(p, size, 0); }
CUDA cudaFreeHost(void *p) { NOT_IN_CAPTURE("cudaFreeHost in a capture"); return give_back(p, 1); }
CUDA cudaHostRegister(void *p, size_t size, unsigned flags) { return 0; }
CUDA cudaHostUnregister(void *p) { return 0; }
CUDA cudaMemGetInfo(size_t *free_, size_t *total) { *total = capacity; *free_ = capacity - used_bytes[device_now]; return 0; }
CUDA cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  int at = place(p, 0);
  memset(a, 0, sizeof *a);
  a->type = at == PAGEABLE ? cudaMemoryTypeUnregistered : at == PINNED ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  a->device = at < 0 ? 0 : at;
  a->devicePointer = at == PAGEABLE ? 0 : (void *)p;
  a->hostPointer = at == PINNED ? (void *)p : 0; return 0; }

/* A copy: bytes, whether the host waits, whether it is pageable. The host waits for copies from the device to
 * pageable memory, and for pageable copies to the device beyond 64 KiB, which are staged. */
#define STAGED (64 << 10)
static cudaError_t copy(void *to, const void *from, size_t size, const void *stream, int async) {
  size_t left_to = size, left_from = size;
  int source = place(from, &left_from), target = place(to, &left_to);
  if (left_to < size || left_from < size) return refuse("a copy beyond an allocation", cudaErrorInvalidValue);
  static const char *NAME[] = {"h2h", "h2d", "d2h", "d2d"};
  int direction = 2 * (source >= 0) + (target >= 0), pageable = source == PAGEABLE || target == PAGEABLE;
  int waits = !async || (pageable && direction == 2) || (pageable && direction == 1 && size > STAGED);
  if (capture_of(stream) && (waits || pageable)) return refuse("a pageable copy in a capture", cudaErrorStreamCaptureUnsupported);
  if (!captured(stream)) { if (waits) drain(); memmove(to, from, size); }
  NOTE(COPY, NAME[direction], stream, size, waits, pageable);
  if (waits) NOTE(WAIT_HOST, direction == 2 ? "copy to the host" : "synchronous copy", stream, size);
  return 0; }
CUDA cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind k) { NOT_IN_CAPTURE("cudaMemcpy in a capture"); return copy(to, from, n, 0, 0); }
CUDA cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind k, cudaStream_t s) { return copy(to, from, n, s, 1); }
CUDA cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t n, cudaStream_t s) { return copy(to, from, n, s, 1); }
CUDA cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s) {
  size_t left = n;
  if (place(p, &left) == PAGEABLE || left < n) return refuse("a memset beyond an allocation", cudaErrorInvalidValue);
  if (!captured(s)) memset(p, value, n);
  NOTE(MEMSET, "cudaMemset", s, n); return 0; }
CUDA cudaMemset(void *p, int value, size_t n) { NOT_IN_CAPTURE("cudaMemset in a capture"); return cudaMemsetAsync(p, value, n, 0); }
CUDA cudaMemcpyToSymbol(const void *symbol, const void *from, size_t n, size_t offset, enum cudaMemcpyKind k) { return 0; }
CUDA cudaGetSymbolAddress(void **p, const void *symbol) { *p = take(4096, device_now); return 0; }
CUDA cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int d) { static int pool; *p = (void *)&pool; return 0; }
CUDA cudaMemPoolGetAttribute(cudaMemPool_t p, enum cudaMemPoolAttr a, void *v) { *(uint64_t *)v = 0; return 0; }
CUDA cudaMemPoolSetAttribute(cudaMemPool_t p, enum cudaMemPoolAttr a, void *v) { return 0; }
CUDA cudaMemPoolSetAccess(cudaMemPool_t p, const struct cudaMemAccessDesc *d, size_t n) { return 0; }
CUDA cudaMemPoolTrimTo(cudaMemPool_t p, size_t n) { return 0; }
CUDA cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p) { return error(NOT_SUPPORTED); }
CUDA cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned f) { return error(NOT_SUPPORTED); }
CUDA cudaIpcCloseMemHandle(void *p) { return 0; }
CUDA cudaIpcGetEventHandle(cudaIpcEventHandle_t *h, cudaEvent_t e) { return error(NOT_SUPPORTED); }
CUDA cudaIpcOpenEventHandle(cudaEvent_t *e, cudaIpcEventHandle_t h) { return error(NOT_SUPPORTED); }

/* ---------------------------------------------------------------- the device */
CUDA cudaGetDeviceCount(int *n) { *n = devices; return 0; }
CUDA cudaGetDevice(int *d) { *d = device_now; return 0; }
CUDA cudaSetDevice(int d) { if (d < 0 || d >= devices) return error(cudaErrorInvalidDevice); device_now = d; return 0; }
CUDA cudaDriverGetVersion(int *v) { *v = 13000; return 0; }
CUDA cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }
CUDA cudaGetLastError(void) { cudaError_t e = last_error; last_error = 0; return e; }
CUDA cudaPeekAtLastError(void) { return last_error; }
API const char *cudaGetErrorName(cudaError_t e) { return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOfTheRecorder"; }
API const char *cudaGetErrorString(cudaError_t e) {
  static __thread char text[64];
  snprintf(text, sizeof text, e == cudaErrorMemoryAllocation ? "out of memory" : "the recording device refuses (%d)", e);
  return text; }
CUDA cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = 1; return 0; }
CUDA cudaDeviceEnablePeerAccess(int a, unsigned f) { return 0; }
CUDA cudaDeviceGetPCIBusId(char *text, int n, int d) { snprintf(text, n, "00000000:%02X:00.0", d); return 0; }
static int attribute(int which) {
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 2147483647;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
    case cudaDevAttrTotalConstantMemory: case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrClockRate: return 1980000;
    case cudaDevAttrMultiProcessorCount: return profile()->processors;
    case cudaDevAttrMemoryClockRate: return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth: return 5120;
    case cudaDevAttrL2CacheSize: return 50 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return capability == 75 ? 1024 : 2048;
    case cudaDevAttrComputeCapabilityMajor: return capability / 10;
    case cudaDevAttrComputeCapabilityMinor: return capability % 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return profile()->shared + 1024;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return profile()->shared;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
    case cudaDevAttrReservedSharedMemoryPerBlock: return 1024;
    case cudaDevAttrConcurrentKernels: case cudaDevAttrUnifiedAddressing: case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrGlobalL1CacheSupported: case cudaDevAttrLocalL1CacheSupported: case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess: case cudaDevAttrCooperativeLaunch: case cudaDevAttrMemoryPoolsSupported: return 1;
    case cudaDevAttrAsyncEngineCount: return 3;
  }
  return 0; }
CUDA cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) { *v = attribute(a); return 0; }
CUDA cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, profile()->name);
  p->totalGlobalMem = capacity; p->sharedMemPerBlock = 49152; p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32; p->maxThreadsPerBlock = 1024; p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535; p->totalConstMem = 65536;
  p->major = capability / 10; p->minor = capability % 10; p->textureAlignment = 512;
  p->multiProcessorCount = profile()->processors; p->concurrentKernels = 1; p->asyncEngineCount = 3; p->unifiedAddressing = 1;
  p->memoryBusWidth = 5120; p->l2CacheSize = 50 << 20; p->maxThreadsPerMultiProcessor = capability == 75 ? 1024 : 2048;
  p->sharedMemPerMultiprocessor = profile()->shared + 1024; p->sharedMemPerBlockOptin = profile()->shared; p->managedMemory = 1;
  p->cooperativeLaunch = 1; p->maxBlocksPerMultiProcessor = 32; p->reservedSharedMemPerBlock = 1024; p->streamPrioritiesSupported = 1;
  p->globalL1CacheSupported = p->localL1CacheSupported = 1; p->pciBusID = d; return 0; }
CUDA cudaProfilerStart(void) { return 0; }
CUDA cudaProfilerStop(void) { return 0; }

/* ---------------------------------------------------------------- kernels
 * A kernel: grid x, y, z, threads of a block, bytes of dynamic shared memory. */
static cudaError_t launch(const char *name, dim3 grid, dim3 block, size_t shared, const void *stream) {
  if (!stream && captures_of_all) return refuse("a launch on the legacy stream during a capture", cudaErrorStreamCaptureImplicit);
  if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535) return refuse(name, cudaErrorInvalidConfiguration);
  if (!block.x || (long)block.x * block.y * block.z > 1024 || block.z > 64) return refuse(name, cudaErrorInvalidConfiguration);
  if (shared > (size_t)profile()->shared) return refuse(name, cudaErrorInvalidValue);
  int in_graph = captured(stream);
  NOTE(LAUNCH, name, stream, grid.x, grid.y, grid.z, (long)block.x * block.y * block.z, shared);
  if (!in_graph) work(1);
  return 0; }

#define SLOTS (1u << 19)
static struct { const void *function; const char *name; } names[SLOTS];
static unsigned slot(const void *p) {
  uintptr_t x = (uintptr_t)p; x ^= x >> 17;
  unsigned i = (unsigned)(x * 0x9E3779B97F4A7C15ull >> 40) & (SLOTS - 1);
  while (names[i].function && names[i].function != p) i = (i + 1) & (SLOTS - 1);
  return i; }
static const char *name_of(const void *f) { const char *name = names[slot(f)].name; return name ? name : "?"; }
API void **__cudaRegisterFatBinary(void *f) { static void *handle[4]; return handle; }
API void __cudaRegisterFatBinaryEnd(void **h) {}
API void __cudaUnregisterFatBinary(void **h) {}
API void __cudaRegisterVar(void **h, char *v, char *a, const char *n, int e, size_t s, int c, int g) {}
API void __cudaRegisterFunction(void **h, const char *f, char *d, const char *name, int t, void *a, void *b, void *c, void *e, int *w) {
  unsigned i = slot(f); names[i].function = f; names[i].name = name; }

/* Inductor fills constants on the device and reads them back while it compiles, and the loss scale is a fill:
 * small fills of PyTorch's own kernel are done. */
static void fill(const char *name, void **arguments, const void *stream) {
  const char *type;
  if (capture_of(stream) || !strstr(name, "vectorized_elementwise_kernel") || !(type = strstr(name, "FillFunctorI"))) return;
  type += strlen("FillFunctorI");
  int size = strchr("fi", *type) ? 4 : strchr("dlm", *type) ? 8 : strchr("bah", *type) ? 1 : strchr("stN", *type) ? 2 : 0;
  long count = *(int *)arguments[0];
  char *data = *(char **)arguments[2];
  if (size && count * size <= 1 << 20) for (long i = 0; i < count; i++) memcpy(data + i * size, arguments[1], size); }
CUDA cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **a, size_t shared, cudaStream_t s) {
  fill(name_of(f), a, s); return launch(name_of(f), g, b, shared, s); }
CUDA __cudaLaunchKernel(cudaKernel_t f, dim3 g, dim3 b, void **a, size_t shared, cudaStream_t s) { return cudaLaunchKernel((const void *)f, g, b, a, shared, s); }
CUDA cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **a) {
  return launch(name_of(f), c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream); }
CUDA cudaLaunchCooperativeKernel(const void *f, dim3 g, dim3 b, void **a, size_t shared, cudaStream_t s) { return launch(name_of(f), g, b, shared, s); }
CUDA __cudaGetKernel(cudaKernel_t *k, const void *f) { *k = (void *)f; return 0; }
static __thread struct { dim3 grid, block; size_t shared; cudaStream_t stream; } pushed[8];
static __thread int pushes;
API unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t shared, struct CUstream_st *s) {
  pushed[pushes].grid = g; pushed[pushes].block = b; pushed[pushes].shared = shared; pushed[pushes++].stream = s; return 0; }
CUDA __cudaPopCallConfiguration(dim3 *g, dim3 *b, size_t *shared, void *s) {
  pushes--; *g = pushed[pushes].grid; *b = pushed[pushes].block; *shared = pushed[pushes].shared; *(cudaStream_t *)s = pushed[pushes].stream; return 0; }
CUDA cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
  memset(a, 0, sizeof *a); a->maxThreadsPerBlock = 1024; a->numRegs = 64; a->binaryVersion = a->ptxVersion = capability;
  a->maxDynamicSharedSizeBytes = profile()->shared; return 0; }
CUDA cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute a, int v) {
  return a == cudaFuncAttributeMaxDynamicSharedMemorySize && v > profile()->shared ? error(cudaErrorInvalidValue) : 0; }
CUDA cudaKernelSetAttributeForDevice(cudaKernel_t f, enum cudaFuncAttribute a, int v, int d) { return cudaFuncSetAttribute(f, a, v); }
CUDA cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t shared, unsigned fl) { *n = 2; return 0; }
CUDA cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t shared) { *n = 2; return 0; }
CUDA cudaLibraryLoadData(cudaLibrary_t *l, const void *c, enum cudaJitOption *o, void **v, unsigned n, enum cudaLibraryOption *lo, void **lv, unsigned m) {
  *l = malloc(8); return 0; }
CUDA cudaLibraryUnload(cudaLibrary_t l) { return 0; }
CUDA cudaLibraryGetKernel(cudaKernel_t *k, cudaLibrary_t l, const char *name) { *k = (void *)strdup(name); return 0; }
CUDA cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned v, unsigned long long fl, enum cudaDriverEntryPointQueryResult *r) {
  *f = dlsym(RTLD_DEFAULT, name); if (r) *r = *f ? 0 : 1; return *f ? 0 : error(cudaErrorInvalidValue); }

/* ---------------------------------------------------------------- the driver's interface, for Triton and Inductor */
#define DRIVER API int
DRIVER cuInit(unsigned f) { return 0; }
DRIVER cuDriverGetVersion(int *v) { *v = 13000; return 0; }
DRIVER cuDeviceGet(int *d, int o) { *d = o; return 0; }
DRIVER cuDeviceGetCount(int *n) { *n = devices; return 0; }
DRIVER cuDeviceGetName(char *text, int n, int d) { snprintf(text, n, "%s", profile()->name); return 0; }
DRIVER cuDeviceGetAttribute(int *v, int a, int d) { *v = attribute(a); return 0; }
DRIVER cuDeviceTotalMem_v2(size_t *n, int d) { *n = capacity; return 0; }
DRIVER cuDevicePrimaryCtxGetState(int d, unsigned *f, int *active) { if (f) *f = 0; *active = 1; return 0; }
static void *context(void) { static int contexts[16]; return contexts + (device_now & 15); }
DRIVER cuDevicePrimaryCtxRetain(void **c, int d) { *c = context(); return 0; }
DRIVER cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
DRIVER cuCtxGetCurrent(void **c) { *c = context(); return 0; }
DRIVER cuCtxSetCurrent(void *c) { return 0; }
DRIVER cuCtxPushCurrent_v2(void *c) { return 0; }
DRIVER cuCtxPopCurrent_v2(void **c) { *c = context(); return 0; }
DRIVER cuCtxPushCurrent(void *c) { return 0; }
DRIVER cuCtxPopCurrent(void **c) { *c = context(); return 0; }
DRIVER cuCtxGetDevice(int *d) { *d = device_now; return 0; }
DRIVER cuCtxSynchronize(void) { return cudaDeviceSynchronize(); }
DRIVER cuCtxGetLimit(size_t *n, int l) { *n = 1 << 20; return 0; }
DRIVER cuCtxSetLimit(int l, size_t n) { return 0; }
DRIVER cuGetErrorString(int e, const char **s) { *s = cudaGetErrorString(e); return 0; }
DRIVER cuGetErrorName(int e, const char **s) { *s = cudaGetErrorName(e); return 0; }
/* A cubin is an ELF file whose e_flags hold the capability that it was assembled for, in the low byte or, in
 * newer versions, in the second one. */
DRIVER cuModuleLoadData(void **m, const void *image) {
  if (!memcmp(image, "\177ELF", 4)) {
    uint32_t flags; memcpy(&flags, (const char *)image + 48, 4);
    if ((flags & 255) != capability && (flags >> 8 & 255) != capability) return refuse("code for another compute capability", NO_BINARY);
  }
  *m = malloc(8); return 0; }
DRIVER cuModuleLoadDataEx(void **m, const void *image, unsigned n, void *o, void *v) { return cuModuleLoadData(m, image); }
DRIVER cuModuleLoad(void **m, const char *path) {
  char header[64] = {0};
  FILE *file = fopen(path, "rb");
  if (!file) return 301;
  size_t got = fread(header, 1, sizeof header, file); (void)got;
  fclose(file);
  return cuModuleLoadData(m, header); }
DRIVER cuModuleUnload(void *m) { free(m); return 0; }
DRIVER cuModuleGetFunction(void **f, void *m, const char *name) { *f = strdup(name); return 0; }
DRIVER cuFuncGetAttribute(int *v, int a, void *f) { *v = a == 0 ? 1024 : a == 4 ? 64 : 0; return 0; }
DRIVER cuFuncSetAttribute(void *f, int a, int v) { return a == 8 && v > profile()->shared ? 1 : 0; }
DRIVER cuFuncSetCacheConfig(void *f, int c) { return 0; }
DRIVER cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **p, void **x) {
  return launch(f, (dim3){gx, gy, gz}, (dim3){bx, by, bz}, shared, s); }
DRIVER cuLaunchCooperativeKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **p) {
  return launch(f, (dim3){gx, gy, gz}, (dim3){bx, by, bz}, shared, s); }
typedef struct { unsigned gx, gy, gz, bx, by, bz, shared; void *stream, *attributes; unsigned n; } LaunchConfig;
DRIVER cuLaunchKernelEx(const LaunchConfig *c, void *f, void **p, void **x) {
  return launch(f, (dim3){c->gx, c->gy, c->gz}, (dim3){c->bx, c->by, c->bz}, c->shared, c->stream); }
DRIVER cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int b, size_t s) { *n = 2; return 0; }
DRIVER cuOccupancyMaxActiveClusters(int *n, void *f, const void *c) { *n = 16; return 0; }
DRIVER cuPointerGetAttribute(void *out, int a, unsigned long p) {
  int at = place((void *)p, 0);
  if (at == PAGEABLE) return 1;
  if (a == 3 || a == 7) *(unsigned long *)out = p;
  else *(int *)out = a == 2 ? (at == PINNED ? 1 : 2) : 0;
  return 0; }
DRIVER cuTensorMapEncodeTiled(void *m) { return 0; }
DRIVER cuTensorMapEncodeIm2col(void *m) { return 0; }
#define LACKS(name) DRIVER name(void) { return NOT_SUPPORTED; }
LACKS(cuMemGetAddressRange) LACKS(cuMemGetAddressRange_v2) LACKS(cuMemAddressReserve) LACKS(cuMemRelease) LACKS(cuMemMap)
LACKS(cuMemAddressFree) LACKS(cuMemSetAccess) LACKS(cuMemUnmap) LACKS(cuMemCreate) LACKS(cuMemGetAllocationGranularity)
LACKS(cuMemExportToShareableHandle) LACKS(cuMemImportFromShareableHandle) LACKS(cuMemRetainAllocationHandle)
LACKS(cuMemGetAllocationPropertiesFromHandle) LACKS(cuMemsetD32Async) LACKS(cuStreamWriteValue32) LACKS(cuLinkCreate_v2)
LACKS(cuLinkAddData_v2) LACKS(cuLinkComplete) LACKS(cuGreenCtxCreate) LACKS(cuGreenCtxDestroy) LACKS(cuGreenCtxStreamCreate)
LACKS(cuCtxFromGreenCtx) LACKS(cuDevSmResourceSplitByCount) LACKS(cuDeviceGetDevResource) LACKS(cuDevResourceGenerateDesc)
LACKS(cuMulticastAddDevice) LACKS(cuMulticastBindMem) LACKS(cuMulticastCreate) LACKS(cuMulticastUnbind)

/* ---------------------------------------------------------------- cuBLAS and cuBLASLt
 * A product: m, n, k, batch, type of the inputs (cudaDataType), leading dimensions of a, b and c. */
typedef struct { void *stream; int pointer_mode, math_mode; } Handle;
#define BLAS API int
static int product(const char *name, const void *s, long m, long n, long k, long batch, long type, long lda, long ldb, long ldc) {
  if (!s && captures_of_all) return refuse(name, cudaErrorStreamCaptureImplicit), 13;
  int in_graph = captured(s);
  NOTE(PRODUCT, name, s, m, n, k, batch, type, lda, ldb, ldc);
  if (!in_graph) work(1);
  return 0; }
BLAS cublasCreate_v2(Handle **h) { *h = calloc(1, sizeof **h); return 0; }
BLAS cublasDestroy_v2(Handle *h) { return 0; }
BLAS cublasSetStream_v2(Handle *h, void *s) { h->stream = s; return 0; }
BLAS cublasSetWorkspace_v2(Handle *h, void *w, size_t n) { return 0; }
BLAS cublasSetMathMode(Handle *h, int m) { h->math_mode = m; return 0; }
BLAS cublasGetMathMode(Handle *h, int *m) { *m = h->math_mode; return 0; }
BLAS cublasSetPointerMode_v2(Handle *h, int m) { h->pointer_mode = m; return 0; }
BLAS cublasGetPointerMode_v2(Handle *h, int *m) { *m = h->pointer_mode; return 0; }
BLAS cublasSetSmCountTarget(Handle *h, int n) { return 0; }
BLAS cublasGemmEx(Handle *h, int ta, int tb, int m, int n, int k, const void *al, const void *a, int at, int lda, const void *b, int bt, int ldb,
    const void *be, void *c, int ct, int ldc, int compute, int algorithm) { return product("cublasGemmEx", h->stream, m, n, k, 1, at, lda, ldb, ldc); }
BLAS cublasSgemm_v2(Handle *h, int ta, int tb, int m, int n, int k, const float *al, const float *a, int lda, const float *b, int ldb,
    const float *be, float *c, int ldc) { return product("cublasSgemm", h->stream, m, n, k, 1, 0, lda, ldb, ldc); }
BLAS cublasDgemm_v2(Handle *h, int ta, int tb, int m, int n, int k, const double *al, const double *a, int lda, const double *b, int ldb,
    const double *be, double *c, int ldc) { return product("cublasDgemm", h->stream, m, n, k, 1, 1, lda, ldb, ldc); }
BLAS cublasSgemv_v2(Handle *h, int t, int m, int n, const float *al, const float *a, int lda) { return product("cublasSgemv", h->stream, m, n, 1, 1, 0, lda, 0, 0); }
BLAS cublasDotEx(Handle *h) { return 0; }
BLAS cublasGemmStridedBatchedEx(Handle *h, int ta, int tb, int m, int n, int k, const void *al, const void *a, int at, int lda, long sa, const void *b,
    int bt, int ldb, long sb, const void *be, void *c, int ct, int ldc, long sc, int batch, int compute, int algorithm) {
  return product("cublasGemmStridedBatchedEx", h->stream, m, n, k, batch, at, lda, ldb, ldc); }
BLAS cublasSgemmStridedBatched(Handle *h, int ta, int tb, int m, int n, int k, const float *al, const float *a, int lda, long sa, const float *b,
    int ldb, long sb, const float *be, float *c, int ldc, long sc, int batch) {
  return product("cublasSgemmStridedBatched", h->stream, m, n, k, batch, 0, lda, ldb, ldc); }
typedef struct { int type; uint64_t rows, columns; int64_t leading; int batch; } Matrix;
typedef struct { int ta, tb, epilogue; } Multiply;
#define OPAQUE 512 /* bytes, more than any opaque descriptor of cuBLASLt */
API size_t cublasLtGetVersion(void) { return 130000; }
BLAS cublasLtCreate(void **h) { *h = malloc(8); return 0; }
BLAS cublasLtMatmulDescCreate(Multiply **d, int compute, int scale) { *d = calloc(1, OPAQUE); return 0; }
BLAS cublasLtMatmulDescDestroy(void *d) { free(d); return 0; }
BLAS cublasLtMatmulDescSetAttribute(Multiply *d, int which, const void *v, size_t n) {
  if (which == 3) d->ta = *(int *)v;
  if (which == 4) d->tb = *(int *)v;
  if (which == 7) d->epilogue = *(int *)v;
  return 0; }
BLAS cublasLtMatmulPreferenceCreate(void **p) { *p = calloc(1, OPAQUE); return 0; }
BLAS cublasLtMatmulPreferenceDestroy(void *p) { free(p); return 0; }
BLAS cublasLtMatmulPreferenceSetAttribute(void *p, int which, const void *v, size_t n) { return 0; }
BLAS cublasLtMatrixLayoutCreate(Matrix **m, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  *m = calloc(1, OPAQUE); **m = (Matrix){type, rows, columns, leading, 1}; return 0; }
BLAS cublasLtMatrixLayoutDestroy(void *m) { free(m); return 0; }
BLAS cublasLtMatrixLayoutSetAttribute(Matrix *m, int which, const void *v, size_t n) { if (which == 5) m->batch = *(int *)v; return 0; }
BLAS cublasLtMatmulAlgoGetHeuristic(void *h, Multiply *d, Matrix *a, Matrix *b, Matrix *c, Matrix *o, void *p, int want, void *result, int *n) {
  memset(result, 0, 96); *n = 1; return 0; } /* one cublasLtMatmulHeuristicResult_t: success */
BLAS cublasLtMatmul(void *h, Multiply *d, const void *al, const void *a, Matrix *la, const void *b, Matrix *lb, const void *be, const void *c,
    Matrix *lc, void *o, Matrix *lo, const void *algorithm, void *w, size_t ws, void *s) {
  return product(d->epilogue > 1 ? "cublasLtMatmul+epilogue" : "cublasLtMatmul", s, lo->rows, lo->columns, d->ta ? la->rows : la->columns,
                 la->batch, la->type, la->leading, lb->leading, lo->leading); }

/* ---------------------------------------------------------------- NCCL
 * A collective: elements and type. It leaves the data as it is; ranks meet in gloo alone. */
typedef struct { int size, rank; } Communicator;
typedef struct { char internal[128]; } UniqueId;
#define NCCL API int
static int join(void **c, int size, int rank) { Communicator *x = malloc(sizeof *x); *x = (Communicator){size, rank}; *c = x; return 0; }
NCCL ncclGetVersion(int *v) { *v = 22907; return 0; }
NCCL ncclGetUniqueId(UniqueId *u) { memset(u, 7, sizeof *u); return 0; }
NCCL ncclCommInitRank(void **c, int n, UniqueId id, int r) { return join(c, n, r); }
NCCL ncclCommInitRankConfig(void **c, int n, UniqueId id, int r, void *f) { return join(c, n, r); }
NCCL ncclCommInitRankScalable(void **c, int n, int r, int ids, UniqueId *id, void *f) { return join(c, n, r); }
NCCL ncclCommSplit(void *old, int color, int key, void **c, void *f) { Communicator *o = old; return join(c, o->size, o->rank); }
NCCL ncclCommDestroy(void *c) { return 0; }
NCCL ncclCommAbort(void *c) { return 0; }
NCCL ncclCommFinalize(void *c) { return 0; }
NCCL ncclCommGetAsyncError(void *c, int *e) { *e = 0; return 0; }
NCCL ncclCommCount(void *c, int *n) { *n = ((Communicator *)c)->size; return 0; }
NCCL ncclCommUserRank(void *c, int *n) { *n = ((Communicator *)c)->rank; return 0; }
API const char *ncclGetErrorString(int e) { return "the recording device"; }
API const char *ncclGetLastError(void *c) { return ""; }
NCCL ncclGroupStart(void) { return 0; }
NCCL ncclGroupEnd(void) { return 0; }
static int collective(const char *name, size_t n, int type, const void *s) {
  int in_graph = captured(s); NOTE(COLLECTIVE, name, s, n, type); if (!in_graph) work(1); return 0; }
NCCL ncclAllReduce(const void *a, void *b, size_t n, int t, int o, void *c, void *s) { return collective("ncclAllReduce", n, t, s); }
NCCL ncclBroadcast(const void *a, void *b, size_t n, int t, int r, void *c, void *s) { return collective("ncclBroadcast", n, t, s); }
NCCL ncclBcast(void *b, size_t n, int t, int r, void *c, void *s) { return collective("ncclBcast", n, t, s); }
NCCL ncclAllGather(const void *a, void *b, size_t n, int t, void *c, void *s) { return collective("ncclAllGather", n, t, s); }
NCCL ncclReduceScatter(const void *a, void *b, size_t n, int t, int o, void *c, void *s) { return collective("ncclReduceScatter", n, t, s); }
NCCL ncclReduce(const void *a, void *b, size_t n, int t, int o, int r, void *c, void *s) { return collective("ncclReduce", n, t, s); }
