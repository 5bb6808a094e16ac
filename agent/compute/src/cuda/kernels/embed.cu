// Rows of an embedding table.
#include "copy.cuh"

using namespace pd;

namespace {

template <typename T>
DEVICE void scale_row(void* to, const void* from, const EmbedArgs& args) {
  auto src = static_cast<const T*>(from);
  auto dst = static_cast<T*>(to);
  for (uint32_t i = threadIdx.x; i < args.row_bytes / sizeof(T); i += COPY_THREADS) {
    dst[i] = from_float<T>(to_float(src[i]) * args.scale);
  }
}

}  // namespace

// Grid: rows.
KERNEL(pd_embed, EmbedArgs, COPY_THREADS) {
  uint32_t token = args.token_ids[blockIdx.x];
  auto to = static_cast<uint8_t*>(args.out) + uint64_t(blockIdx.x) * args.row_bytes;
  if (token == NONE) {
    auto row = reinterpret_cast<uint16_t*>(to);
    for (uint32_t i = threadIdx.x; i < args.row_bytes / 2; i += COPY_THREADS) row[i] = 0;
    return;
  }
  if (token >= args.vocab) {
    if (threadIdx.x == 0) report_fault(args.fault, OP_EMBED, FAULT_TOKEN, token, args.vocab);
    return;
  }
  auto from = static_cast<const uint8_t*>(args.table) + uint64_t(token) * args.row_bytes;
  if (args.scale == 1.0f) {
    copy_block(to, from, args.row_bytes);
  } else if (args.element_bytes == sizeof(float)) {
    scale_row<float>(to, from, args);
  } else {
    scale_row<bf16>(to, from, args);
  }
}
