/* A driver library that behaves like NVIDIA's where our driver calls are concerned, with the host's
 * memory as the GPU's: it refuses what the real one refuses (no current context, a foreign stream, a
 * block of too many threads) and writes each launch with its arguments to the file FAKE_CUDA_LOG.
 * A kernel named copy_kernel(to, from, bytes) copies; others do nothing.
 * Prototypes and codes: CUDA Driver API reference manual. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
       INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600 };

typedef uint64_t Address;
typedef struct { float time; int recorded; } Event;
typedef struct { char name[256]; } Function;

static char context, other_context, stream_made, stream_recorded;
static _Thread_local void *current, *below[8];
static _Thread_local int depth;
static int streams, modules, events;
static size_t used;
static float now;

static long setting(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? atol(text) : otherwise;
}
static size_t total(void) { return setting("FAKE_CUDA_MEMORY", 1L << 30); }
static int ready(void *stream) {
  if (current != &context) return INVALID_CONTEXT;
  return stream == &stream_made || stream == &stream_recorded ? OK : INVALID_HANDLE;
}
/* A graph: what was started on the stream that is recorded, with a copy of its arguments. */
typedef struct { void *function; unsigned x, threads; uint64_t values[3]; } Node;
typedef struct { Node nodes[64]; int count; } Graph;
static Graph *recording;
static int graphs;
static Node *node(void *stream) {
  return recording && stream == &stream_recorded ? &recording->nodes[recording->count++] : NULL;
}

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : (int)setting("FAKE_CUDA_INIT", OK); }
int cuDriverGetVersion(int *version) { *version = setting("FAKE_CUDA_VERSION", 13000); return OK; }
int cuDeviceGetCount(int *count) { *count = setting("FAKE_CUDA_DEVICES", 1); return OK; }
int cuDeviceGet(int *device, int ordinal) { *device = 70 + ordinal; return ordinal ? INVALID_DEVICE : OK; }
int cuDeviceGetName(char *name, int length, int device) {
  if (device != 70) return INVALID_DEVICE;
  snprintf(name, length, "Fake H100");
  return OK;
}
int cuDeviceTotalMem(size_t *bytes, int device) { *bytes = total(); return device == 70 ? OK : INVALID_DEVICE; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) { /* CUdevice_attribute */
    case 13: *value = 1980000; break;  /* CLOCK_RATE, kHz */
    case 16: *value = 132; break;      /* MULTIPROCESSOR_COUNT */
    case 36: *value = 2619000; break;  /* MEMORY_CLOCK_RATE, kHz */
    case 37: *value = 5120; break;     /* GLOBAL_MEMORY_BUS_WIDTH, bits */
    case 38: *value = 52428800; break; /* L2_CACHE_SIZE */
    case 75: *value = 9; break;        /* COMPUTE_CAPABILITY_MAJOR */
    case 76: *value = 0; break;        /* COMPUTE_CAPABILITY_MINOR */
    case 97: *value = 232448; break;   /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    default: return INVALID_VALUE;
  }
  return device == 70 ? OK : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(void **made, int device) {
  *made = &context;
  return device == 70 ? (int)setting("FAKE_CUDA_RETAIN", OK) : INVALID_DEVICE;
}
int cuCtxSetCurrent(void *wanted) {
  current = wanted;
  return wanted == &context || wanted == &other_context ? OK : INVALID_CONTEXT;
}
int cuCtxPushCurrent(void *wanted) {
  if (depth == 8) return INVALID_VALUE;
  below[depth++] = current;
  return cuCtxSetCurrent(wanted);
}
int cuCtxPopCurrent(void **popped) {
  *popped = current;
  current = depth ? below[--depth] : NULL;
  return OK;
}
int cuStreamCreate(void **made, unsigned flags) {
  *made = streams ? &stream_recorded : &stream_made;
  if (current != &context) return INVALID_CONTEXT;
  if (flags > 1) return INVALID_VALUE;
  streams++;
  return OK;
}
int cuStreamDestroy(void *stream) {
  int state = ready(stream);
  if (state == OK) streams--;
  return state;
}
int cuStreamSynchronize(void *stream) { return ready(stream); }

int cuMemGetInfo(size_t *free, size_t *whole) {
  *whole = total();
  *free = *whole - used;
  return current == &context ? OK : INVALID_CONTEXT;
}
int cuMemAlloc(Address *address, size_t size) {
  if (current != &context) return INVALID_CONTEXT;
  if (!size) return INVALID_VALUE;
  if (used + size > total()) return OUT_OF_MEMORY;
  size_t *block = aligned_alloc(256, (256 + size + 255) / 256 * 256);
  *block = size;
  used += size;
  *address = (Address)(block + 32);
  return OK;
}
int cuMemFree(Address address) {
  if (current != &context) return INVALID_CONTEXT;
  size_t *block = (size_t *)address - 32;
  used -= *block;
  free(block);
  return OK;
}
int cuMemcpyHtoDAsync(Address to, const void *from, size_t bytes, void *stream) {
  int state = ready(stream);
  if (state == OK) memcpy((void *)to, from, bytes);
  return state;
}
int cuMemcpyDtoHAsync(void *to, Address from, size_t bytes, void *stream) {
  return cuMemcpyHtoDAsync((Address)to, (void *)from, bytes, stream);
}
int cuMemcpyDtoDAsync(Address to, Address from, size_t bytes, void *stream) {
  Node *kept = node(stream);
  if (kept) {
    *kept = (Node){NULL, 0, 0, {to, from, bytes}};
    return OK;
  }
  return cuMemcpyHtoDAsync(to, (void *)from, bytes, stream);
}

int cuModuleLoadData(void **module, const void *image) {
  if (current != &context) return INVALID_CONTEXT;
  if (memcmp(image, "\177ELF", 4)) return INVALID_IMAGE;
  *module = &context;
  modules++;
  return OK;
}
int cuModuleUnload(void *module) {
  if (current != &context) return INVALID_CONTEXT;
  if (module != &context) return INVALID_HANDLE;
  modules--;
  return OK;
}
/* What tests ask: which GPU is current in a thread (0, 1, none: -1), or make GPU 1 so; streams, modules and events that were not given back. */
int fake_current(void) { return current == &context ? 0 : current == &other_context ? 1 : -1; }
int fake_work_on_another(void) { return cuCtxSetCurrent(&other_context); }
int fake_streams(void) { return streams; }
int fake_modules(void) { return modules; }
int fake_events(void) { return events; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
  if (module != &context) return INVALID_HANDLE;
  if (!strcmp(name, "absent")) return NOT_FOUND;
  Function *made = calloc(1, sizeof *made);
  strncpy(made->name, name, sizeof made->name - 1);
  *function = made;
  return OK;
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  int state = ready(stream);
  if (state != OK) return state;
  if (!x || y != 1 || z != 1 || !threads || threads > 1024 || ty != 1 || tz != 1 || shared || extra) return INVALID_VALUE;
  const char *name = ((Function *)function)->name, *log = getenv("FAKE_CUDA_LOG");
  uint64_t *first = arguments[0];
  Node *kept = node(stream);
  if (kept) {
    *kept = (Node){function, x, threads, {*first}};
    for (int i = 1; i < 3 && !strcmp(name, "copy_kernel"); i++) kept->values[i] = *(uint64_t *)arguments[i];
    return OK;
  }
  if (log) {
    FILE *file = fopen(log, "a");
    fprintf(file, "%s %u %u %llu\n", name, x, threads, (unsigned long long)*first);
    fclose(file);
  }
  if (!strcmp(name, "copy_kernel"))
    memcpy((void *)*first, *(void **)arguments[1], *(uint64_t *)arguments[2]);
  now += 0.25f;
  return OK;
}

int cuStreamBeginCapture(void *stream, int mode) {
  int state = setting("FAKE_CUDA_CAPTURE", OK);
  if (state != OK) return state;
  if (stream != &stream_recorded || mode != 1 || recording) return INVALID_VALUE;
  recording = calloc(1, sizeof *recording);
  graphs++;
  return OK;
}
int cuStreamEndCapture(void *stream, void **graph) {
  if (stream != &stream_recorded || !recording) return INVALID_HANDLE;
  *graph = recording;
  recording = NULL;
  return OK;
}
int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
  if (flags) return INVALID_VALUE;
  *made = malloc(sizeof(Graph));
  memcpy(*made, graph, sizeof(Graph));
  graphs++;
  return OK;
}
int cuGraphDestroy(void *graph) {
  free(graph);
  graphs--;
  return OK;
}
int cuGraphExecDestroy(void *graph) { return cuGraphDestroy(graph); }
int cuGraphLaunch(void *graph, void *stream) {
  int state = stream == &stream_made ? ready(stream) : INVALID_HANDLE;
  Graph *all = graph;
  for (int i = 0; state == OK && i < all->count; i++) {
    Node *each = &all->nodes[i];
    void *arguments[] = {&each->values[0], &each->values[1], &each->values[2]};
    state = each->function ? cuLaunchKernel(each->function, each->x, 1, 1, each->threads, 1, 1, 0, stream, arguments, NULL)
                           : cuMemcpyDtoDAsync(each->values[0], each->values[1], each->values[2], stream);
  }
  return state;
}
int fake_graphs(void) { return graphs; }

int cuEventCreate(void **event, unsigned flags) {
  *event = calloc(1, sizeof(Event));
  events++;
  return current != &context ? INVALID_CONTEXT : flags ? INVALID_VALUE : OK;
}
int cuEventDestroy(void *event) {
  if (current != &context) return INVALID_CONTEXT;
  free(event);
  events--;
  return OK;
}
int cuEventRecord(void *event, void *stream) {
  *(Event *)event = (Event){now, 1};
  return ready(stream);
}
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  Event *from = start, *to = end;
  *milliseconds = to->time - from->time;
  return from->recorded && to->recorded ? OK : NOT_READY;
}

#define HERE(name) {#name, name}
static const struct { const char *name; void *function; } FUNCTIONS[] = {
  HERE(cuInit), HERE(cuDriverGetVersion), HERE(cuDeviceGetCount), HERE(cuDeviceGet), HERE(cuDeviceGetName),
  HERE(cuDeviceTotalMem), HERE(cuDeviceGetAttribute), HERE(cuDevicePrimaryCtxRetain), HERE(cuCtxSetCurrent),
  HERE(cuStreamCreate), HERE(cuStreamSynchronize), HERE(cuMemGetInfo), HERE(cuMemAlloc), HERE(cuMemFree),
  HERE(cuMemcpyHtoDAsync), HERE(cuMemcpyDtoHAsync), HERE(cuMemcpyDtoDAsync), HERE(cuModuleLoadData),
  HERE(cuModuleGetFunction), HERE(cuLaunchKernel), HERE(cuEventCreate), HERE(cuEventRecord),
  HERE(cuEventElapsedTime), HERE(cuCtxPushCurrent), HERE(cuCtxPopCurrent), HERE(cuStreamDestroy),
  HERE(cuModuleUnload), HERE(cuEventDestroy), HERE(cuStreamBeginCapture), HERE(cuStreamEndCapture),
  HERE(cuGraphInstantiateWithFlags), {"cuGraphInstantiate", cuGraphInstantiateWithFlags}, HERE(cuGraphDestroy),
  HERE(cuGraphExecDestroy), HERE(cuGraphLaunch),
};

/* How callers find everything else. */
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
  *function = strcmp(name, "cuGetProcAddress") ? NULL : (void *)cuGetProcAddress_v2;
  for (unsigned i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++)
    if (!strcmp(name, FUNCTIONS[i].name)) *function = FUNCTIONS[i].function;
  if (status) *status = *function == NULL;
  return *function ? OK : NOT_FOUND;
}
