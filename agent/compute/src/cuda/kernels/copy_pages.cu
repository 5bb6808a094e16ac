// Pages between the pool and the host.
#include "copy.cuh"

using namespace pd;

// Grid: pages.
KERNEL(pd_copy_pages, CopyPagesArgs, COPY_THREADS) {
  uint32_t page = args.page_indices[blockIdx.x];
  if (page >= args.num_pool_pages) {
    if (threadIdx.x == 0) report_fault(args.fault, OP_COPY_PAGES, FAULT_PAGE, page, args.num_pool_pages);
    return;
  }
  auto pool = static_cast<uint8_t*>(args.pool) + page * args.cut_page_bytes;
  auto host = static_cast<uint8_t*>(args.host) + blockIdx.x * args.host_page_bytes + args.host_offset_bytes;
  copy_block(args.to_host ? host : pool, args.to_host ? pool : host, args.cut_page_bytes);
}
