// What kernels of layers with recurrent states share.
//
// A thread or lane reads its part of a state before it writes any, and alone has that part; so a sequence may read and
// write one slot.
#pragma once
#include "args.cuh"

namespace pd {

// The state in a slot, or null where there is none. A slot that does not exist is a fault.
template <typename T>
DEVICE T* state_in(const States& states, Fault* fault, uint32_t op, uint32_t slot) {
  if (slot == NONE) return nullptr;
  if (slot < states.num_slots) return static_cast<T*>(states.region) + slot * states.item_len;
  report_fault(fault, op, FAULT_STATE, slot, states.num_slots);
  return nullptr;
}

}  // namespace pd
