// The linears of experts: the product of linear.cuh over the rows that chose an expert, wherever they lie.
#include "linear_hopper.cuh"

using namespace pd;
using namespace pd::linears;

namespace {

// Rows of choices: listed, or one.
struct ChosenRows {
  const uint32_t* x_rows;  // null: one choice
  const uint32_t* out_rows;
  uint32_t x_row;
  uint32_t out_row;

  template <typename T>
  struct From {
    const T* x;
    const uint32_t* rows;
    uint32_t row;
    DEVICE const T* at(const LinearArgs& args, uint32_t i) const {
      return x + uint64_t(rows ? rows[i] : row) * args.k;
    }
  };
  template <typename T>
  DEVICE From<T> from(const LinearArgs& args, uint32_t first) const {
    return From<T>{static_cast<const T*>(args.x), x_rows ? x_rows + first : nullptr, x_row};
  }
  DEVICE uint64_t out(uint32_t row, uint32_t width) const {
    return uint64_t(out_rows ? out_rows[row] : out_row) * width;
  }
};

// The product of a tile, with the matrices of its expert; false where there is nothing to multiply.
template <typename T>
DEVICE bool find_rows(const ExpertLinearArgs& args, uint32_t tile, LinearArgs& product, ChosenRows& rows) {
  uint32_t expert;
  product = args.product;
  if (args.tiles) {
    ExpertTile found = args.tiles[tile];
    if (found.rows == 0) return false;
    expert = found.expert;
    product.rows = found.rows;
    rows = ChosenRows{args.x_rows + found.first, args.out_rows + found.first, 0, 0};
  } else {
    uint32_t id = args.chosen[tile];
    uint32_t num_experts = args.experts.num_experts;
    if (id >= num_experts && threadIdx.x == 0) {
      report_fault(args.fault, OP_MOE_EXPERTS, FAULT_EXPERT, id, num_experts);
    }
    if (!args.experts.has(id)) return false;
    expert = args.experts.of(id);
    product.rows = 1;
    rows = ChosenRows{nullptr, nullptr, tile / args.x_divisor, tile};
  }
  uint64_t before = uint64_t(expert) * product.n;
  product.weight = static_cast<const T*>(product.weight) + before * product.k;
  if (product.bias) product.bias += before;
  return true;
}

}  // namespace

// Grid: tiles, columns by what a block makes. Shared memory: as the linears of linear.cu.
#define EXPERT_FEW(rows, columns, slots, words)                                        \
  KERNEL(pd_expert_##rows##x##columns##_bf16, ExpertLinearArgs, 256) {                 \
    LinearArgs product;                                                                \
    ChosenRows places;                                                                 \
    if (!find_rows<bf16>(args, blockIdx.x, product, places)) return;                   \
    linear_few<rows, columns, slots, words, false, bf16>(product, places, 0);          \
  }
EXPERT_FEW(8, 16, 3, 8)
EXPERT_FEW(16, 32, 3, 4)
EXPERT_FEW(32, 32, 3, 4)

KERNEL(pd_expert_tiled_bf16, ExpertLinearArgs, 256) {
  LinearArgs product;
  ChosenRows places;
  if (!find_rows<bf16>(args, blockIdx.x, product, places)) return;
  linear_tiled<bf16, false>(product, places, 0);
}

// Grid: tiles, n / HOPPER_COLUMNS. Shared memory: HOPPER_STAGES · (HOPPER_ROWS + HOPPER_COLUMNS) · HOPPER_K_STEP elements,
// and SWIZZLE_ALIGN bytes.
KERNEL(pd_expert_hopper_bf16, ExpertLinearArgs, 256) {
  LinearArgs product;
  ChosenRows places;
  if (!find_rows<bf16>(args, blockIdx.x, product, places)) return;
  linear_hopper<bf16>(product, places, 0, blockIdx.y * HOPPER_COLUMNS);
}

// Grid: n / 16, tiles of ROWS_F32.
KERNEL(pd_expert_full_f32, ExpertLinearArgs, 256) {
  LinearArgs product;
  ChosenRows places;
  if (!find_rows<float>(args, blockIdx.y, product, places)) return;
  linear_f32(product, places, 0);
}
