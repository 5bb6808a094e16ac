//! Facts about words of a step that name what is not there: the stream faults, and its fault names the op.

use super::*;
use pd_compute::cuda::kernels::Kernel;
use pd_compute::{
    AttnPaged, AttnValues, BatchView, CausalConv, CopyDirection, CopyStates, DeviceBuffer,
    Epilogue, ExpertSource, GdnScan, KvCutView, KvGroupView, KvScales, MlaPrep, MoeExperts,
    NO_SLOT, OpFeature, OpNeeds, StateRows, StateTensorView, StateView, Strided,
};

fn started() -> Subject<CudaBackend> {
    HOPPER.start(DType::F32, false)
}

fn fault_of(subject: &Subject<CudaBackend>) -> String {
    let fault = subject.backend.fence().wait().map(|_| ());
    fault.expect_err("it is refused").to_string()
}

/// A choice by itself and one of many, of which the last names an expert that is not there.
#[test]
fn an_expert_that_does_not_exist_faults_the_stream() {
    for rows in [1, 100] {
        let subject = started();
        let values = [0.5f32; 64];
        let matrix = matrix("expert", 8, &values);
        let expert = ExpertSource {
            gate: matrix,
            up: matrix,
            down: matrix,
        };
        let experts = subject.backend.pack_experts(&[expert; 2]).unwrap();
        let mut chosen = vec![1; rows];
        chosen[rows - 1] = 2;
        let floats = || subject.zeros(DType::F32, rows * 8);
        subject.backend.moe_experts(MoeExperts {
            x: &floats(),
            chosen: &subject.words(&chosen),
            weights: &subject.floats(&vec![1.0; rows]),
            top_k: 1,
            num_experts: 2,
            experts: &experts,
            first_expert: 0,
            bias: None,
            glu: Epilogue::SwiGlu,
            gated: &floats(),
            terms: &floats(),
            sums: &floats(),
            rows,
        });
        let said =
            "op moe_experts faulted: expert 2 is beyond the 2; the queue runs nothing after it";
        assert_eq!(fault_of(&subject), said);
    }
}

/// One sequence of one row, and states of one head in three slots.
struct OneRow {
    batch: BatchView<CudaBackend>,
    states: StateView<CudaBackend>,
}

// === impl OneRow ===

impl OneRow {
    fn new(subject: &Subject<CudaBackend>, elements: usize) -> Self {
        let none = subject.words(&[]);
        let batch = BatchView {
            num_tokens: 1,
            num_seqs: 1,
            token_ids: none.clone(),
            positions: none.clone(),
            q_indptr: subject.words(&[0, 1]),
            kv_lens: none.clone(),
            page_table: none.clone(),
            page_table_stride: 0,
            out_slots: none,
        };
        let states = StateView {
            region: subject.zeros(DType::F32, 3 * elements),
            num_slots: 3,
            num_layers: 1,
            tensors: [StateTensorView { heads: 1, elements }].into(),
        };
        Self { batch, states }
    }
}

/// Slots of a step that reads, writes and keeps these.
fn slots(subject: &Subject<CudaBackend>, words: [u32; 3]) -> StateRows<CudaBackend> {
    let [read, write, snapshot] = words.map(|word| subject.words(&[word]));
    StateRows {
        read,
        write,
        snapshot,
    }
}

#[test]
fn a_state_slot_that_does_not_exist_faults_the_stream() {
    for place in 0..3 {
        let mut words = [NO_SLOT; 3];
        words[place] = 3;
        let said = |op| {
            format!(
                "op {op} faulted: state slot 3 is beyond the 3; the queue runs nothing after it"
            )
        };

        let subject = started();
        let floats = |len| subject.zeros(DType::F32, len);
        let OneRow { batch, states } = OneRow::new(&subject, 3 * 8);
        let x = floats(8);
        subject.backend.causal_conv(CausalConv {
            x: Strided {
                values: &x,
                row_stride: 8,
            },
            weight: &floats(4 * 8),
            taps: 4,
            batch: &batch,
            states: &states,
            state_rows: &slots(&subject, words),
            layer: 0,
            out: &floats(8),
        });
        assert_eq!(fault_of(&subject), said("causal_conv"));

        let subject = started();
        let floats = |len| subject.zeros(DType::F32, len);
        let OneRow { batch, states } = OneRow::new(&subject, 8 * 8);
        let gates = floats(1);
        let gate = Strided {
            values: &gates,
            row_stride: 1,
        };
        subject.backend.gdn_scan(GdnScan {
            qkv: &floats(24),
            num_k_heads: 1,
            k_dim: 8,
            a: gate,
            b: gate,
            decay: &floats(1),
            dt_bias: &floats(1),
            batch: &batch,
            states: &states,
            state_rows: &slots(&subject, words),
            layer: 0,
            out: &floats(8),
        });
        assert_eq!(fault_of(&subject), said("gdn_scan"));
    }
}

#[test]
fn a_state_that_is_copied_to_no_slot_faults_the_stream() {
    let subject = started();
    let OneRow { batch: _, states } = OneRow::new(&subject, 16);
    let host = subject.backend.alloc_host("host", DType::F32, 16).unwrap();
    assert_eq!(host.len(), states.item_len());
    subject.backend.copy_states(CopyStates {
        states: &states,
        slots: &subject.words(&[7]),
        num_slots: 1,
        host: &host,
        direction: CopyDirection::HostToPool,
    });
    assert_eq!(
        fault_of(&subject),
        "op copy_states faulted: state slot 7 is beyond the 3; the queue runs nothing after it"
    );
}

#[test]
fn what_kernels_do_not_take_is_refused_before_weights_are_read() {
    let refused = |feature| {
        let needs = OpNeeds {
            features: [OpFeature::GatedDelta, feature].into(),
            kv: Vec::new(),
        };
        let checked = started().backend.check_ops(&needs);
        checked.map_err(|error| error.to_string())
    };
    assert_eq!(refused(OpFeature::LatentAttention), Ok(()));
    let said = refused(OpFeature::LongDeltaKeys).unwrap_err();
    let expected =
        "the CUDA backend lacks gated delta layers with k heads of more than 256 elements";
    assert!(said.starts_with(expected), "{said}");
}

/// One sequence of latents in pages of `PAGE` keys of `DIM` elements, of which there are two.
struct Latents {
    batch: BatchView<CudaBackend>,
    kv: KvGroupView<CudaBackend>,
}

const DIM: usize = 16;
const PAGE: usize = 16;

// === impl Latents ===

impl Latents {
    /// All rows are queries, of a sequence with `keys` keys in this page, and go to this slot.
    fn new(subject: &Subject<CudaBackend>, rows: u32, keys: u32, page: u32, slot: u32) -> Self {
        let words = subject.words(&vec![slot; rows as usize]);
        let batch = BatchView {
            num_tokens: rows as usize,
            num_seqs: 1,
            token_ids: words.clone(),
            positions: words.clone(),
            q_indptr: subject.words(&[0, rows]),
            kv_lens: subject.words(&[keys]),
            page_table: subject.words(&[page]),
            page_table_stride: 1,
            out_slots: words,
        };
        let dtype = subject.dtype();
        let region = subject.zeros(dtype, 2 * PAGE * DIM);
        let cut = KvCutView::page_first(region, 0..1, 1, 1, PAGE, DIM);
        let kv = KvGroupView {
            dtype,
            page_size: PAGE,
            num_pages: 2,
            num_kv_heads: 1,
            head_dim: DIM,
            tensors: 1,
            cuts: [cut].into(),
        };
        Self { batch, kv }
    }

    fn attend(&self, subject: &Subject<CudaBackend>) {
        let rows = self.batch.num_tokens;
        let zeros = |len| subject.zeros(subject.dtype(), rows * len);
        subject.backend.attn_paged(AttnPaged {
            q: &zeros(DIM),
            q_row_stride: DIM,
            num_q_heads: 1,
            scale: 1.0,
            batch: &self.batch,
            kv: &self.kv,
            kv_scales: KvScales::ONE,
            layer: 0,
            window: None,
            sinks: None,
            softcap: None,
            values: AttnValues::OfKey(8),
            gate: None,
            out: &zeros(8),
        });
    }

    fn prepare(&self, subject: &Subject<CudaBackend>) {
        let rows = self.batch.num_tokens;
        let floats = |len| subject.zeros(DType::F32, len);
        subject.backend.mla_prep(MlaPrep {
            q: &floats(rows * 16),
            num_heads: 1,
            nope_dim: 8,
            latent: &floats(rows * DIM),
            norm: &floats(8),
            eps: 1e-6,
            rope: &floats(rows * 8),
            batch: &self.batch,
            kv: &self.kv,
            layer: 0,
            kv_scales: KvScales::ONE,
            q_out: &floats(rows * DIM),
        });
    }
}

/// More queries than an axis of a grid but the first has blocks. None sees a key, and nothing waits for them.
#[test]
fn latents_of_the_longest_steps_are_launched() {
    for device in [HOPPER, OLDER] {
        let subject = device.start(DType::BF16, false);
        Latents::new(&subject, (1 << 16) + 1, 0, 0, 0).attend(&subject);
        assert_eq!(subject.backend.health().err(), None);
    }
}

#[test]
fn latents_take_the_kernels_of_their_device_and_step() {
    let log = |(major, minor), deterministic, rows| {
        let driver = EmulatedDriver::new(1 << 30).with_compute_capability(major, minor);
        let driver = Arc::new(driver);
        let config = CudaConfig {
            dtype: DType::BF16,
            deterministic,
        };
        let backend = CudaBackend::start(driver.clone(), config).expect("it has the memory");
        let subject = Subject { backend };
        Latents::new(&subject, rows, rows, 0, 0).attend(&subject);
        assert!(subject.backend.fence().wait().is_ok());
        driver.log()
    };
    let (hopper, older) = ((9, 0), (8, 0));
    let (few, many) = (Kernel::AttendLatentTile16, Kernel::AttendLatentTile64);
    let fold = Kernel::FoldLatentSplits;
    assert_eq!(log(hopper, false, 1), [few, fold]);
    assert_eq!(log(hopper, false, 9), [many, fold]);
    assert_eq!(log(hopper, true, 1), [many]);
    assert_eq!(log(older, false, 9), [Kernel::AttendLatentBf16]);
}

#[test]
fn a_page_of_latents_that_does_not_exist_faults_the_stream() {
    for dtype in [DType::F32, DType::BF16] {
        let subject = HOPPER.start(dtype, false);
        Latents::new(&subject, 1, 5, 2, 0).attend(&subject);
        let said = "op attn_paged faulted: page 2 is beyond the pool of 2; the queue runs nothing after it";
        assert_eq!(fault_of(&subject), said);
    }
}

/// The last one that is there, none, and one beyond.
#[test]
fn a_slot_of_latents_that_does_not_exist_faults_the_stream() {
    for slot in [31, NO_SLOT] {
        let subject = started();
        Latents::new(&subject, 1, 1, 0, slot).prepare(&subject);
        assert!(subject.backend.fence().wait().is_ok(), "{slot}");
    }
    let subject = started();
    Latents::new(&subject, 1, 1, 0, 32).prepare(&subject);
    let said =
        "op mla_prep faulted: slot 32 is beyond the pool of 32; the queue runs nothing after it";
    assert_eq!(fault_of(&subject), said);
}
