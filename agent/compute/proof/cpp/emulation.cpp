// Fibres, barriers and warp collectives of the emulation, and every kernel, in one unit so that all register.
#include "emulation.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulation {
namespace {

constexpr uint32_t WARP = 32, THREADS_MAX = 1024;
constexpr size_t STACK_BYTES = 64 << 10;

enum class State : uint8_t { Ready, AtBlockBarrier, AtWarpBarrier, Done };

struct Copy {
  void* to;
  const void* from;
  bool wanted;
};

// A warpgroup's product, of which each lane has its share.
struct Product {
  float* d;
  int len;
  // This lane's share of the left side, or the matrix that it is.
  uint32_t a[4];
  const uint16_t* left;
  const uint16_t* matrix;
  bool transposed;
  uint32_t plane_bytes;
  bool adds;
};

struct Fibre {
  State state;
  Index index;
  bool has_waited;
  // Which half of the exchange the next collective uses, and which of the counts.
  uint32_t turn;
  uint32_t count_turn;
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open_group;
  std::vector<std::vector<Product>> product_groups;
  std::vector<Product> open_products;
#if defined(__x86_64__)
  void* stack_pointer;
#else
  ucontext_t context;
#endif
};

// What a launch of this thread works with.
struct Machine {
  std::vector<Fibre> fibres{THREADS_MAX};
  uint8_t* stacks = nullptr;
  Fibre* running = nullptr;
#if defined(__x86_64__)
  void* scheduler = nullptr;
#else
  ucontext_t scheduler;
#endif
  const Registration* kernel = nullptr;
  const void* args = nullptr;
  Index block{}, block_dim{}, grid{};
  bool descending = false;
  void* shared = nullptr;
  uint64_t exchange[2][THREADS_MAX][3];
  // Both sides of each warp's product.
  float left[2][THREADS_MAX / WARP][16][16], right[2][THREADS_MAX / WARP][8][16];
  // Of this count of the block, the one before and the next.
  uint32_t counts[3];
};

// Of this thread, from its first launch on. A plain pointer, since what is read at every step should not ask whether it is
// there.
thread_local Machine* machine = nullptr;
const Registration* registrations = nullptr;

#if defined(__x86_64__)
extern "C" void pd_emulation_switch(void** save, void* load);
asm(R"(
.text
.p2align 4
pd_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#endif

void to_scheduler() {
#if defined(__x86_64__)
  pd_emulation_switch(&machine->running->stack_pointer, machine->scheduler);
#else
  swapcontext(&machine->running->context, &machine->scheduler);
#endif
}

// To the next lane of the warp if it can go on; the scheduler would resume it next.
void to_next_lane() {
  Fibre& self = *machine->running;
  bool is_last = self.index.x % WARP == (machine->descending ? 0 : WARP - 1);
  Fibre* next = machine->descending ? &self - 1 : &self + 1;
  if (is_last || next->state != State::Ready) return to_scheduler();
  machine->running = next;
#if defined(__x86_64__)
  pd_emulation_switch(&self.stack_pointer, next->stack_pointer);
#else
  swapcontext(&self.context, &next->context);
#endif
}

void run_fibre() {
  machine->kernel->run(machine->args);
  machine->running->state = State::Done;
  to_next_lane();
  abort();
}

void prepare(Fibre& fibre, uint8_t* stack) {
#if defined(__x86_64__)
  auto top = reinterpret_cast<void**>(stack + STACK_BYTES);
  // As after a call: the address to return to, and six registers.
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(run_fibre);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fibre.stack_pointer = top;
#else
  getcontext(&fibre.context);
  fibre.context.uc_stack.ss_sp = stack;
  fibre.context.uc_stack.ss_size = STACK_BYTES;
  fibre.context.uc_link = nullptr;
  makecontext(&fibre.context, run_fibre, 0);
#endif
}

void resume(Fibre& fibre) {
  machine->running = &fibre;
#if defined(__x86_64__)
  pd_emulation_switch(&machine->scheduler, fibre.stack_pointer);
#else
  swapcontext(&machine->scheduler, &fibre.context);
#endif
}

void report_fault(int) {
  char text[256];
  const Index &b = machine->block, &t = machine->running ? machine->running->index : b;
  int len = snprintf(text, sizeof(text), "kernel %s touched memory that is not its: block %u %u %u, thread %u\n",
                     machine->kernel ? machine->kernel->name : "(none)", b.x, b.y, b.z, t.x);
  if (len > 0 && write(2, text, size_t(len)) < 0) _exit(1);
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
}

// Runs a warp's threads until none can go on without the rest of the block.
void run_warp(uint32_t warp, uint32_t threads, bool descending) {
  uint32_t first = warp * WARP, last = first + WARP < threads ? first + WARP : threads;
  for (;;) {
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < last - first; ++i) {
      Fibre& fibre = machine->fibres[descending ? last - 1 - i : first + i];
      if (fibre.state == State::Ready) resume(fibre);
    }
    for (uint32_t i = first; i < last; ++i) waiting += machine->fibres[i].state == State::AtWarpBarrier;
    if (waiting != WARP) return;
    for (uint32_t i = first; i < last; ++i) machine->fibres[i].state = State::Ready;
  }
}

// Runs the threads of one block to their end; an error in `error`, or an empty string.
void run_block(uint32_t threads, bool descending, char* error, size_t error_len) {
  for (uint32_t i = 0; i < threads; ++i) {
    Fibre& fibre = machine->fibres[i];
    fibre.state = State::Ready;
    fibre.index = Index{i, 0, 0};
    fibre.has_waited = false;
    fibre.turn = 0;
    fibre.count_turn = 0;
    fibre.groups.clear();
    fibre.open_group.clear();
    fibre.product_groups.clear();
    fibre.open_products.clear();
    prepare(fibre, machine->stacks + size_t(i) * STACK_BYTES);
  }
  machine->counts[0] = 0;
  uint32_t warps = (threads + WARP - 1) / WARP;
  for (;;) {
    // Each warp goes as far as it can before the next one starts: none may rely on the others' pace.
    for (uint32_t i = 0; i < warps; ++i) run_warp(descending ? warps - 1 - i : i, threads, descending);
    uint32_t done = 0, at_barrier = 0, unwaited = 0;
    for (uint32_t i = 0; i < threads; ++i) {
      done += machine->fibres[i].state == State::Done;
      at_barrier += machine->fibres[i].state == State::AtBlockBarrier;
      unwaited += !machine->fibres[i].has_waited;
    }
    if (done == threads) {
      if (unwaited > 0) snprintf(error, error_len, "%u threads end before the kernels before theirs", unwaited);
      return;
    }
    if (at_barrier > 0 && at_barrier + done == threads) {
      for (uint32_t i = 0; i < threads; ++i) {
        if (machine->fibres[i].state == State::AtBlockBarrier) machine->fibres[i].state = State::Ready;
      }
    } else {
      snprintf(error, error_len, "block %u %u %u: %u threads wait at the block's barrier, %u have ended, the rest wait "
               "in a warp that some lanes do not reach", machine->block.x, machine->block.y, machine->block.z, at_barrier,
               done);
      return;
    }
  }
}

// A place in the exchange for each lane of the running fibre's warp.
uint64_t (*exchange_of_warp())[3] {
  Fibre& fibre = *machine->running;
  auto half = machine->exchange[fibre.turn++ % 2];
  return half + fibre.index.x / WARP * WARP;
}

uint32_t lane() { return machine->running->index.x % WARP; }

float bf16_at(uint64_t words, uint32_t reg, uint32_t half) {
  uint32_t bits = uint32_t(words >> (32 * reg + 16 * half)) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

void check_aligned(const void* place) {
  if (reinterpret_cast<uintptr_t>(place) % 16 == 0) return;
  fprintf(stderr, "kernel %s: a 16-byte access at %p\n", machine->kernel->name, place);
  abort();
}

// Element (row, column) of a matrix that a product reads, in Hopper's 128-byte swizzle: rows of 64 elements, groups of 64
// columns a plane apart; the address bits of the row's number are added, without carry, to those of the word.
float swizzled_at(const uint16_t* start, uint32_t plane_bytes, uint32_t row, uint32_t column) {
  uint64_t at = reinterpret_cast<uint64_t>(start) + column / 64 * uint64_t(plane_bytes) + row * 128 + column % 64 * 2;
  at ^= (at >> 7 & 7) << 4;
  return bf16_at(*reinterpret_cast<const uint16_t*>(at), 0, 0);
}

// Products are exact, sums rounded once, which is what the hardware does within a bit or two.
void multiply(const Product& product) {
  auto places = exchange_of_warp();
  uint32_t me = lane();
  places[me][0] = uint64_t(product.a[1]) << 32 | product.a[0];
  places[me][1] = uint64_t(product.a[3]) << 32 | product.a[2];
  sync_warp();
  for (int i = 0; i < product.len; ++i) {
    uint32_t row = me / 4, upper = i % 4 / 2, column = i / 4 * 8 + me % 4 * 2 + i % 2;
    double sum = product.adds ? product.d[i] : 0.0;
    for (uint32_t k = 0; k < 16; ++k) {
      uint32_t left_row = machine->running->index.x / WARP % 4 * 16 + 8 * upper + row;
      double x = product.left ? swizzled_at(product.left, 0, left_row, k)
                              : bf16_at(places[row * 4 + k % 8 / 2][k / 8], upper, k % 2);
      sum += x * (product.transposed ? swizzled_at(product.matrix, product.plane_bytes, k, column)
                                     : swizzled_at(product.matrix, product.plane_bytes, column, k));
    }
    product.d[i] = float(sum);
  }
}

}  // namespace

Registration::Registration(const char* name, size_t args_bytes, uint32_t threads, void (*run)(const void*))
    : name(name), args_bytes(args_bytes), threads(threads), run(run), next(registrations) {
  registrations = this;
}

const Index& thread_index() { return machine->running->index; }
const Index& block_index() { return machine->block; }
const Index& block_size() { return machine->block_dim; }
const Index& grid_size() { return machine->grid; }
void* shared_memory() { return machine->shared; }

void sync_block() {
  machine->running->state = State::AtBlockBarrier;
  to_next_lane();
}
uint32_t count_block(bool says) {
  uint32_t turn = machine->running->count_turn++;
  machine->counts[turn % 3] += says;
  machine->counts[(turn + 1) % 3] = 0;
  sync_block();
  return machine->counts[turn % 3];
}
void await_kernels_before() { machine->running->has_waited = true; }
void check_readable(const void* from, size_t bytes) {
  check_aligned(from);
  for (size_t i = 0; i < bytes; ++i) (void)static_cast<const volatile uint8_t*>(from)[i];
}
void sync_warp() {
  machine->running->state = State::AtWarpBarrier;
  to_next_lane();
}

uint16_t round_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (value != value) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint32_t shuffle(uint32_t value, uint32_t source_lane) {
  auto places = exchange_of_warp();
  places[lane()][0] = value;
  sync_warp();
  return uint32_t(places[source_lane % WARP][0]);
}

// Products are exact, sums rounded once, which is what the hardware does within a bit or two.
void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Fibre& fibre = *machine->running;
  uint32_t half = fibre.turn++ % 2, warp = fibre.index.x / WARP, me = lane(), row = me / 4, t = me % 4 * 2;
  auto left = machine->left[half][warp];
  auto right = machine->right[half][warp];
  for (uint32_t e = 0; e < 2; ++e) {
    for (uint32_t i = 0; i < 4; ++i) left[row + i % 2 * 8][t + i / 2 * 8 + e] = bf16_at(a[i], 0, e);
    for (uint32_t i = 0; i < 2; ++i) right[row][t + i * 8 + e] = bf16_at(b[i], 0, e);
  }
  sync_warp();
  for (uint32_t e = 0; e < 4; ++e) {
    const float *x = left[row + e / 2 * 8], *y = right[t + e % 2];
    double sum = d[e];
    for (uint32_t k = 0; k < 16; ++k) sum += double(x[k]) * y[k];
    d[e] = float(sum);
  }
}

void load_matrices(uint32_t (&r)[4], const uint16_t* row) {
  check_aligned(row);
  auto places = exchange_of_warp();
  uint32_t me = lane();
  places[me][0] = reinterpret_cast<uint64_t>(row);
  sync_warp();
  for (uint32_t m = 0; m < 4; ++m) {
    memcpy(&r[m], reinterpret_cast<const uint16_t*>(places[8 * m + me / 4][0]) + me % 4 * 2, 4);
  }
}

void load_matrices_transposed(uint32_t (&r)[4], const uint16_t* row) {
  check_aligned(row);
  auto places = exchange_of_warp();
  uint32_t me = lane();
  places[me][0] = reinterpret_cast<uint64_t>(row);
  sync_warp();
  for (uint32_t m = 0; m < 4; ++m) {
    auto at = [&](uint32_t i) { return reinterpret_cast<const uint16_t*>(places[8 * m + i][0])[me / 4]; };
    uint32_t first = me % 4 * 2;
    r[m] = uint32_t(at(first)) | uint32_t(at(first + 1)) << 16;
  }
}

// It is made when it is waited for, of what the matrix then holds.
void multiply_warpgroup(float* d, int len, const uint32_t* a, const uint16_t* left, const uint16_t* matrix,
                        bool transposed, uint32_t plane_bytes, bool adds) {
  Product product{d, len, {}, left, matrix, transposed, plane_bytes, adds};
  if (a) memcpy(product.a, a, sizeof(product.a));
  machine->running->open_products.push_back(product);
}
void commit_products() {
  Fibre& fibre = *machine->running;
  fibre.product_groups.push_back(std::move(fibre.open_products));
  fibre.open_products.clear();
}
void wait_products(int pending) {
  auto& groups = machine->running->product_groups;
  while (groups.size() > size_t(pending)) {
    for (const Product& product : groups.front()) multiply(product);
    groups.erase(groups.begin());
  }
}

void copy_async(void* to, const void* from, bool wanted) {
  check_aligned(to);
  if (wanted) check_aligned(from);
  memset(to, 0xff, 16);
  machine->running->open_group.push_back(Copy{to, from, wanted});
}
void commit_copies() {
  Fibre& fibre = *machine->running;
  fibre.groups.push_back(std::move(fibre.open_group));
  fibre.open_group.clear();
}
void wait_copies(int pending) {
  auto& groups = machine->running->groups;
  while (groups.size() > size_t(pending)) {
    for (const Copy& copy : groups.front()) {
      if (copy.wanted) {
        memcpy(copy.to, copy.from, 16);
      } else {
        memset(copy.to, 0, 16);
      }
    }
    groups.erase(groups.begin());
  }
}

}  // namespace emulation

extern "C" const void* pd_emulation_find(const char* name, size_t* args_bytes, uint32_t* threads) {
  for (auto kernel = emulation::registrations; kernel; kernel = kernel->next) {
    if (strcmp(kernel->name, name) != 0) continue;
    *args_bytes = kernel->args_bytes;
    *threads = kernel->threads;
    return kernel;
  }
  return nullptr;
}

// Runs a grid on the calling thread. `error` becomes an empty string or says what went wrong.
extern "C" void pd_emulation_launch(const void* kernel, const uint32_t* grid, uint32_t threads, size_t shared_bytes,
                                    const void* args, bool descending, char* error, size_t error_len) {
  using namespace emulation;
  static const bool handled = (signal(SIGSEGV, report_fault), true);
  (void)handled;
  error[0] = 0;
  thread_local Machine own;
  machine = &own;
  size_t page = size_t(sysconf(_SC_PAGESIZE));
  size_t shared_pages = (shared_bytes + page - 1) / page * page;
  auto memory = [&](size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) abort();
    return static_cast<uint8_t*>(at);
  };
  if (!machine->stacks) machine->stacks = memory(size_t(THREADS_MAX) * STACK_BYTES);
  uint8_t* shared = memory(shared_pages + page);
  mprotect(shared + shared_pages, page, PROT_NONE);
  machine->shared = shared + (shared_pages - (shared_bytes + 15) / 16 * 16);
  machine->kernel = static_cast<const Registration*>(kernel);
  machine->args = args;
  machine->descending = descending;
  machine->grid = Index{grid[0], grid[1], grid[2]};
  machine->block_dim = Index{threads, 1, 1};
  size_t blocks = size_t(grid[0]) * grid[1] * grid[2];
  for (size_t i = 0; i < blocks && !error[0]; ++i) {
    size_t at = descending ? blocks - 1 - i : i;
    machine->block = Index{uint32_t(at % grid[0]), uint32_t(at / grid[0] % grid[1]), uint32_t(at / grid[0] / grid[1])};
    memset(machine->shared, 0xff, shared_bytes);
    run_block(threads, descending, error, error_len);
  }
  machine->running = nullptr;
  machine->kernel = nullptr;
  munmap(shared, shared_pages + page);
}

#include "attn_latent_tile.cuh"
#include "attn_paged.cuh"
#include "copy.cuh"
#include "linear_hopper.cuh"
#include "sample.cuh"
#include "states.cuh"
#include "warpgroup.cuh"

// Each file's own names stay its own.
namespace attn_latent {
#include "attn_latent.cu"
}
namespace attn_latent_tile {
#include "attn_latent_tile.cu"
}
namespace attn_paged {
#include "attn_paged.cu"
}
namespace attn_tile {
#include "attn_tile.cu"
}
namespace conv {
#include "conv.cu"
}
namespace copy_pages {
#include "copy_pages.cu"
}
namespace copy_states {
#include "copy_states.cu"
}
namespace delta {
#include "delta.cu"
}
namespace embed {
#include "embed.cu"
}
namespace experts {
#include "experts.cu"
}
namespace gather_rows {
#include "gather_rows.cu"
}
namespace hopper {
#include "hopper.cu"
}
namespace latent {
#include "latent.cu"
}
namespace linear {
#include "linear.cu"
}
namespace moe {
#include "moe.cu"
}
namespace qkv_prep {
#include "qkv_prep.cu"
}
namespace rms_norm {
#include "rms_norm.cu"
}
namespace rope_table {
#include "rope_table.cu"
}
namespace sample {
#include "sample.cu"
}
namespace sample_partials {
#include "sample_partials.cu"
}

namespace {

// What launches know of the kernels, by its name in kernels.rs.
struct Constant {
  const char* name;
  size_t value;
};
constexpr Constant CONSTANTS[] = {
    {"LINEAR_SEGMENTS", pd::linears::SEGMENTS},
    {"LINEAR_SUMS_STRIDE", pd::linears::SUMS_STRIDE},
    {"LINEAR_TILE", pd::linears::TILE},
    {"LINEAR_HOPPER_ROWS", pd::linears::HOPPER_ROWS},
    {"LINEAR_HOPPER_COLUMNS", pd::linears::HOPPER_COLUMNS},
    {"LINEAR_HOPPER_K_STEP", pd::linears::HOPPER_K_STEP},
    {"LINEAR_HOPPER_STAGES", pd::linears::HOPPER_STAGES},
    {"LINEAR_STAGES", pd::linears::STAGES},
    {"LINEAR_K_STEP", pd::linears::K_STEP},
    {"LINEAR_ROWS_F32", pd::linears::ROWS_F32},
    {"QKV_PREP_HEAD_DIM_MAX", qkv_prep::HEAD_DIM_MAX},
    {"ATTN_PAGED_TOKEN_WARPS", attn_paged::TOKEN_WARPS},
    {"ATTN_TILE_QUERIES", attn_tile::QUERIES},
    {"ATTN_TILE_WIDE_KEYS", attn_tile::WIDE_KEYS},
    {"ATTN_TILE_WIDE_ASIDE", attn_tile::WIDE_ASIDE},
    {"ATTN_PAGED_BLOCK", pd::BLOCK},
    {"HOPPER_QUERIES", hopper::QUERIES},
    {"HOPPER_KEYS", hopper::KEYS},
    {"HOPPER_STAGES", hopper::STAGES},
    {"HOPPER_FOUND", hopper::FOUND},
    {"HOPPER_SWIZZLE_ALIGN", pd::SWIZZLE_ALIGN},
    {"MOE_EXPERTS_MAX", moe::EXPERTS_MAX},
    {"MOE_ROUTE_WARPS", moe::ROUTE_WARPS},
    {"MOE_COLUMNS", moe::COLUMNS},
    {"MOE_SHARES", moe::SHARES},
    {"CONV_THREADS", conv::THREADS},
    {"CONV_TENSORS", pd::CONV_TENSORS},
    {"DELTA_SCAN_COLUMNS", delta::SCAN_COLUMNS},
    {"DELTA_SCAN_STAGE", delta::SCAN_STAGE},
    {"ATTN_LATENT_HEADS", attn_latent::HEADS},
    {"ATTN_LATENT_DIM_MAX", attn_latent::DIM_MAX},
    {"LATENT_TILE_DIM_MAX", pd::latents::TILE_DIM},
    {"LATENT_TILE_VALUE_DIM_MAX", pd::latents::TILE_VALUE_DIM},
    {"LATENT_FOLD_GROUPS", attn_latent_tile::FOLD_GROUPS},
    {"LATENT_TILE_FEW_ROWS", pd::latents::FEW_ROWS},
    {"LATENT_TILE_MANY_ROWS", pd::latents::MANY_ROWS},
    {"LATENT_TILE_FEW_SHARED", sizeof(attn_latent_tile::FewShared)},
    {"LATENT_TILE_MANY_SHARED", sizeof(attn_latent_tile::ManyShared)},
    {"SAMPLE_SPLIT", pd::sampling::SPLIT},
    {"SAMPLE_LISTED", pd::sampling::LISTED},
    {"SAMPLE_PARTIAL", sizeof(pd::SamplePartial)},
    {"SAMPLE_PARTIALS_SHARED", sizeof(sample_partials::Shared)},
    {"SAMPLE_SHARED", sizeof(sample::Shared)},
};

}  // namespace

// Whether the kernels have such a constant.
extern "C" bool pd_emulation_constant(const char* name, size_t* value) {
  for (const Constant& constant : CONSTANTS) {
    if (strcmp(constant.name, name) != 0) continue;
    *value = constant.value;
    return true;
  }
  return false;
}
