// What each kernel is given, field by field as in kernels.rs (a test compares the sizes). Lengths and strides count
// elements unless their name says bytes; pointers are device addresses.
#pragma once
#include "prelude.cuh"

namespace pd {

// The first wrong index that a kernel met, in host memory that the device writes. `op` 0 is none.
struct Fault {
  uint32_t op;
  uint32_t what;  // FaultWhat
  uint32_t value;
  uint32_t limit;
};
enum FaultWhat : uint32_t { FAULT_TOKEN = 1, FAULT_PAGE = 2, FAULT_ROW = 3, FAULT_SLOT = 4 };
enum FaultOp : uint32_t { OP_EMBED = 1, OP_QKV_PREP = 2, OP_ATTN_PAGED = 3, OP_GATHER_ROWS = 4, OP_COPY_PAGES = 5 };

DEVICE void report_fault(Fault* fault, uint32_t op, uint32_t what, uint32_t value, uint32_t limit) {
  // Several threads may write: each field then is one of theirs, and the host reads `op` as a flag.
  fault->what = what;
  fault->value = value;
  fault->limit = limit;
  fence_device();
  fault->op = op;
}

// One layer of the paged pool.
struct KvLayer {
  void* base;  // the layer's first K
  uint64_t page_stride;
  uint64_t head_stride;
  uint64_t kv_stride;
  uint64_t slot_stride;
  uint32_t page_size;
  uint32_t num_pages;
  uint32_t num_kv_heads;
  uint32_t head_dim;
};

struct Batch {
  const uint32_t* q_indptr;    // [num_seqs + 1]
  const uint32_t* kv_lens;     // [num_seqs]
  const uint32_t* page_table;  // [num_seqs][page_table_stride]
  uint32_t page_table_stride;
  uint32_t num_tokens;
  uint32_t num_seqs;
  uint32_t pad;
};

struct EmbedArgs {
  const void* table;  // [vocab][hidden]
  const uint32_t* token_ids;
  void* out;
  Fault* fault;
  uint32_t vocab;
  uint32_t row_bytes;
  uint32_t element_bytes;
  float scale;
};

struct RmsNormArgs {
  void* x;
  const void* add;  // may be null
  const float* weight;
  void* out;
  uint32_t hidden;
  float eps;
  uint32_t adds;  // to what is in `out`
  uint32_t pad;
};

struct RopeTableArgs {
  const uint32_t* positions;
  const float* inv_freq;
  float* out;  // [rows][2 * half]
  uint32_t rows;
  uint32_t half;
  float factor;
  uint32_t pad;
};

struct QkvPrepArgs {
  void* qkv;
  const float* bias;    // may be null
  const float* q_norm;  // may be null
  const float* k_norm;  // may be null
  const float* rope;
  const uint32_t* out_slots;
  Fault* fault;
  KvLayer kv;
  uint64_t row_stride;
  uint32_t rotary_dim;
  uint32_t num_q_heads;
  float eps;
  uint32_t pad;
};

struct GatherRowsArgs {
  const void* src;
  const uint32_t* indices;
  void* out;
  Fault* fault;
  uint64_t row_bytes;
  uint32_t src_rows;
  uint32_t pad;
};

// One cut of every page; `host` is memory of the host that the device reaches.
struct CopyPagesArgs {
  void* pool;
  void* host;
  const uint32_t* page_indices;
  Fault* fault;
  uint64_t cut_page_bytes;
  uint64_t host_page_bytes;  // over all cuts
  uint64_t host_offset_bytes;
  uint32_t num_pool_pages;
  uint32_t to_host;
};

struct LinearArgs {
  const void* x;       // [rows][k]
  const void* weight;  // [n][k]
  void* out;           // [rows][n], where gate and up are joined [rows][n / 2]
  const float* norm;   // [k] of a kernel that norms x
  const float* bias;   // [n]; may be null
  uint32_t rows;
  uint32_t n;
  uint32_t k;
  uint32_t epilogue;  // Epilogue
  float eps;          // of the norm
  float alpha;        // of CLAMPED_SWIGLU
  float limit;        // of SOFT_CAP and CLAMPED_SWIGLU
  uint32_t pad;
};
// From SWIGLU on, a gate and an up become one output.
enum Epilogue : uint32_t { STORE = 0, ADD_RESIDUAL = 1, SOFT_CAP = 2, SWIGLU = 3, GELU_TANH_GLU = 4, CLAMPED_SWIGLU = 5 };

// After a library's product: out[r][i] = silu(y[r][2i]) · y[r][2i + 1].
struct SwiGluArgs {
  const void* y;  // [rows][2 * n]
  void* out;      // [rows][n]
  uint32_t rows;
  uint32_t n;
};

struct AttnArgs {
  const void* q;
  void* out;
  float* partials;     // decode with several splits: [token][q_head][split] of (m, l, o[head_dim])
  uint32_t* arrivals;  // [token][kv head tile], zero between kernels
  Fault* fault;
  Batch batch;
  KvLayer kv;
  uint64_t q_row_stride;
  uint32_t num_q_heads;
  uint32_t splits;
  float scale_log2;  // scale · log2(e)
  uint32_t page_multiplier;  // by which kernels divide by kv.page_size: see `Pages`
  const float* sinks;        // [num_q_heads]; may be null
  const void* gate;          // as q, in rows of its own; may be null
  uint64_t gate_row_stride;
  uint32_t window;    // keys that a query sees at most; NONE: all
  float softcap_log2;  // cap · log2(e); 0: none
  float softcap_inverse;  // 1 / softcap_log2
  uint32_t pad;
};

struct SamplingRow {
  float temperature;
  uint32_t top_k;
  float top_p;
  float min_p;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  uint32_t seed_lo;
  uint32_t seed_hi;
  uint32_t choice;
  uint32_t position;
  uint32_t draw;
  uint32_t given;
  uint32_t top_n;
  uint32_t counts_begin;
  uint32_t counts_end;
  uint32_t bias_begin;
  uint32_t bias_end;
};
struct TokenCount {
  uint32_t token;
  uint32_t output_count;
};
struct LogitBias {
  uint32_t token;
  float bias;
};

// What a split of a row comes to.
struct SamplePartial {
  uint64_t best;      // its likeliest token, `Ranked`; 0 if all logits are NaN
  uint64_t mass;      // of as many ids in a row, the first split's first; 0 if the row wants none
  float sum;          // of 2^((logit − largest of the split) · log2 e)
  uint32_t cut;       // ordered bits of the lowest logit that is listed, as are all above; NONE if none is
  uint32_t listed;    // how many are
  uint32_t arrivals;  // of the row's blocks, in its first split
};

struct SampleArgs {
  float* logits;  // [rows][vocab]
  const SamplingRow* rows;
  const TokenCount* token_counts;
  const LogitBias* logit_bias;
  uint32_t* tokens;
  float* logprobs;
  uint32_t* top_tokens;  // [rows][top_n_max]
  float* top_logprobs;
  SamplePartial* partials;  // [rows][splits]
  uint64_t* listed;         // [rows][LISTED] of `Ranked`, an equal share of the places for each split
  uint32_t vocab;
  uint32_t top_n_max;
  uint32_t num_token_counts;
  uint32_t num_logit_bias;
};

}  // namespace pd
