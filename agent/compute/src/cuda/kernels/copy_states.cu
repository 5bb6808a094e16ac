// Recurrent states between their slots and the host.
#include "copy.cuh"

using namespace pd;

// Grid: slots, parts of a state.
KERNEL(pd_copy_states, CopyStatesArgs, COPY_THREADS) {
  uint32_t slot = args.slots[blockIdx.x];
  if (slot >= args.num_slots) {
    if (threadIdx.x == 0) report_fault(args.fault, OP_COPY_STATES, FAULT_STATE, slot, args.num_slots);
    return;
  }
  uint64_t begin = blockIdx.y * args.part_bytes, bytes = min_of(args.part_bytes, args.item_bytes - begin);
  auto state = static_cast<uint8_t*>(args.states) + slot * args.item_bytes + begin;
  auto host = static_cast<uint8_t*>(args.host) + blockIdx.x * args.item_bytes + begin;
  copy_block(args.to_host ? host : state, args.to_host ? state : host, bytes);
}
