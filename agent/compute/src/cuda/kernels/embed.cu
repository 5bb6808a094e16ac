// Rows of an embedding table.
#include "copy.cuh"

using namespace pd;

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
  copy_block(to, from, args.row_bytes);
}
