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
enum FaultWhat : uint32_t {
  FAULT_TOKEN = 1,
  FAULT_PAGE = 2,
  FAULT_ROW = 3,
  FAULT_SLOT = 4,
  FAULT_EXPERT = 5,
  FAULT_STATE = 6,
};
enum FaultOp : uint32_t {
  OP_EMBED = 1,
  OP_QKV_PREP = 2,
  OP_ATTN_PAGED = 3,
  OP_GATHER_ROWS = 4,
  OP_COPY_PAGES = 5,
  OP_MOE_EXPERTS = 6,
  OP_CAUSAL_CONV = 7,
  OP_GDN_SCAN = 8,
  OP_COPY_STATES = 9,
  OP_MLA_PREP = 10,
};

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
  // Of a pool of E4M3: what its keys and values are multiplied by, and where those that it could not hold are counted, in
  // host memory.
  uint64_t* saturated;
  float k_scale;
  float v_scale;
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
  uint32_t shares;    // of a tree's eight, those that k has: 1, 2, 4 or 8; or 0: no tree
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
  uint32_t value_dim;     // of latents: the first elements of a key; otherwise kv.head_dim
};

struct MoeRouteArgs {
  const float* logits;       // [rows][num_experts]
  const float* choice_bias;  // [num_experts]; may be null
  uint32_t* chosen;          // [rows][top_k]
  float* weights;            // [rows][top_k]
  uint32_t rows;
  uint32_t num_experts;
  uint32_t top_k;
  uint32_t scores;         // Scores
  uint32_t groups;         // 0: experts are in none
  uint32_t groups_chosen;
  uint32_t group_best;     // how many of a group's experts it is worth: 1 or 2
  uint32_t normalise;
  float scale;
  uint32_t pad;
};
enum Scores : uint32_t { SOFTMAX = 0, SIGMOID = 1, SOFTMAX_OF_CHOSEN = 2 };

// Which experts of a layer are here; others are another rank's.
struct LocalExperts {
  uint32_t num_experts;
  uint32_t first;
  uint32_t count;
  uint32_t pad;
  // Its number among those here, `count` or more of one that is not.
  DEVICE uint32_t of(uint32_t id) const { return id - first; }
  DEVICE bool has(uint32_t id) const { return of(id) < count; }
};

// Choices of one expert that are multiplied together; none where `rows` is 0.
struct ExpertTile {
  uint32_t expert;  // among those that are here
  uint32_t first;   // of the sorted choices
  uint32_t rows;
  uint32_t pad;
};

// Choices, [row][top_k], sorted by expert and cut into tiles.
struct ExpertTilesArgs {
  const uint32_t* chosen;
  ExpertTile* tiles;  // [tiles_max]
  uint32_t* rows;     // of each sorted choice
  uint32_t* choices;  // the sorted ones
  Fault* fault;
  LocalExperts experts;
  uint32_t num_choices;
  uint32_t top_k;
  uint32_t tile_rows;
  uint32_t tiles_max;
};

struct ExpertLinearArgs {
  LinearArgs product;  // of the first expert; others' weights and biases follow
  const uint32_t* chosen;
  const ExpertTile* tiles;   // null: tile i is choice i
  const uint32_t* x_rows;    // of each sorted choice
  const uint32_t* out_rows;  // of each sorted choice
  Fault* fault;
  LocalExperts experts;
  uint32_t x_divisor;  // choices for each row of x
  uint32_t pad;
};

struct MoeCombineArgs {
  const void* terms;  // [choices][hidden]
  const uint32_t* chosen;
  const float* weights;
  void* sums;  // [rows][hidden]
  LocalExperts experts;
  uint32_t hidden;
  uint32_t top_k;
};

struct MoeFinishArgs {
  const void* sums;
  const void* shared;  // may be null
  const float* gate;   // [rows]; may be null
  void* x;
  uint32_t hidden;
  uint32_t pad;
};

// The recurrent states of a layer's kind, and what a step does with which slot.
struct States {
  void* region;  // [num_slots][item_len]
  uint64_t item_len;
  const uint32_t* q_indptr;  // [num_seqs + 1]
  const uint32_t* read;      // [num_seqs]
  const uint32_t* write;     // [num_seqs]
  const uint32_t* snapshot;  // [num_tokens]
  uint32_t num_slots;
  uint32_t pad;
};

// The heads of a tensor of a state that keeps rows of channels.
struct ConvTensor {
  uint64_t first;  // within an item: the layer's part of the first head
  uint64_t head_stride;
  uint32_t first_channel;
  uint32_t head_channels;
};
constexpr uint32_t CONV_TENSORS = 3;

struct CausalConvArgs {
  const void* x;
  const float* weight;  // [taps][channels]
  void* out;            // [num_tokens][channels]
  Fault* fault;
  States states;
  uint64_t x_row_stride;
  ConvTensor tensors[CONV_TENSORS];
  uint32_t channels;
  uint32_t taps;
  uint32_t chunk;  // rows of a sequence that a block makes
  uint32_t num_seqs;  // 0: blocks have whole sequences
};

struct GdnScanArgs {
  const void* qkv;
  const void* a;
  const void* b;
  const float* decay;
  const float* dt_bias;
  void* out;
  Fault* fault;
  States states;
  uint64_t first;  // within an item: the layer's part of the first head
  uint64_t head_stride;
  uint64_t a_row_stride;
  uint64_t b_row_stride;
  uint32_t num_k_heads;
  uint32_t num_v_heads;
  uint32_t k_dim;
  uint32_t v_dim;
  float q_scale;  // k_dim^-½
  uint32_t pad;
};

struct GatedNormArgs {
  void* x;  // [rows][num_heads][head_dim]
  const void* z;
  const float* weight;
  uint64_t z_row_stride;
  uint32_t num_heads;
  uint32_t head_dim;
  float eps;
  uint32_t pad;
};

// Whole states; `host` is memory of the host that the device reaches.
struct CopyStatesArgs {
  void* states;
  void* host;
  const uint32_t* slots;
  Fault* fault;
  uint64_t item_bytes;
  uint64_t part_bytes;
  uint32_t num_slots;
  uint32_t to_host;
};

struct MlaPrepArgs {
  const void* q;       // [rows][num_heads][nope_dim + rope_dim]
  const void* latent;  // [rows][latent_dim + rope_dim]
  const float* norm;
  const float* rope;
  const uint32_t* out_slots;
  void* q_out;  // [rows][num_heads][latent_dim + rope_dim]
  Fault* fault;
  KvLayer kv;
  uint32_t num_heads;
  uint32_t nope_dim;
  uint32_t rope_dim;
  uint32_t latent_dim;
  float eps;
  uint32_t pad;
};

struct HeadLinearArgs {
  LinearArgs product;  // of the first head; others' weights follow
  uint64_t x_head_stride;
  uint64_t out_head_stride;
  uint32_t heads;
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
  uint32_t mask;
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
  const uint32_t* masks;  // [masks][words of vocab]
  const uint32_t* asked_tokens;  // [rows][asked_max]
  uint32_t* tokens;
  float* logprobs;
  uint32_t* top_tokens;  // [rows][top_n_max]
  float* top_logprobs;
  float* asked_logprobs;  // [rows][asked_max]
  SamplePartial* partials;  // [rows][splits]
  uint64_t* listed;         // [rows][LISTED] of `Ranked`, an equal share of the places for each split
  uint32_t vocab;
  uint32_t top_n_max;
  uint32_t num_token_counts;
  uint32_t num_logit_bias;
  uint32_t num_masks;
  uint32_t asked_max;
};

}  // namespace pd
