// Rows copied by index.
#include "copy.cuh"

using namespace pd;

// Grid: rows.
KERNEL(pd_gather_rows, GatherRowsArgs, COPY_THREADS) {
  uint32_t row = args.indices[blockIdx.x];
  if (row == NONE) return;
  if (row >= args.src_rows) {
    if (threadIdx.x == 0) report_fault(args.fault, OP_GATHER_ROWS, FAULT_ROW, row, args.src_rows);
    return;
  }
  auto from = static_cast<const uint8_t*>(args.src) + row * args.row_bytes;
  copy_block(static_cast<uint8_t*>(args.out) + blockIdx.x * args.row_bytes, from, args.row_bytes);
}
