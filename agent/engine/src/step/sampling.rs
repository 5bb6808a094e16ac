//! `SamplingRows`: the sampler's inputs for one step, gathered on the host and uploaded in one
//! copy.

use crate::grammar::MaskJob;
use crate::req::Req;
use bytemuck::Zeroable;
use pd_compute::{LogitBias, NO_MASK, NO_TOKEN, SamplingRow, TokenCount};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct SamplingRows {
    pub(crate) rows: Vec<SamplingRow>,
    pub(crate) token_counts: Vec<TokenCount>,
    pub(crate) logit_bias: Vec<LogitBias>,
    /// Of the rows that have a mask, in the order of their indices.
    pub(crate) masks: Vec<MaskJob>,
    /// Largest `top_n` of a row.
    pub(crate) top_n_max: usize,
    /// Of rows that ask for log probabilities of tokens: their index, and those tokens.
    asked: Vec<(usize, Arc<[u32]>)>,
}

/// What comes between a request's tokens and the one that is sampled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ahead<'a> {
    /// So many tokens that are being drawn.
    Unknown(usize),
    /// These, if they turn out to be right; only then the sample counts.
    Drafts(&'a [u32]),
}

// === impl Ahead ===

impl<'a> Ahead<'a> {
    /// How many, and those that are known.
    fn parts(self) -> (usize, &'a [u32]) {
        match self {
            Self::Unknown(len) => (len, &[]),
            Self::Drafts(drafts) => (drafts.len(), drafts),
        }
    }
}

// === impl SamplingRows ===

impl SamplingRows {
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.token_counts.clear();
        self.logit_bias.clear();
        self.masks.clear();
        self.top_n_max = 0;
        self.asked.clear();
    }

    /// A row that samples the token after `req.tokens` and those ahead of them, and reports the `top_n` likeliest.
    ///
    /// # Panics
    /// If the request has a grammar and tokens ahead are not known.
    pub(crate) fn push_sample(&mut self, req: &Req, ahead: Ahead<'_>, top_n: u32) {
        let (len, drafts) = ahead.parts();
        let mask = req.mask_job(drafts).map(|job| {
            assert_eq!(len, drafts.len(), "a mask follows from known tokens");
            self.masks.push(job);
            index(self.masks.len() - 1)
        });
        self.push_drawn(req, ahead, top_n, mask);
    }

    /// A row that draws a draft after `req.tokens` and `drafts`, by no grammar.
    pub(crate) fn push_draft(&mut self, req: &Req, drafts: &[u32]) {
        self.push_drawn(req, Ahead::Drafts(drafts), 0, None);
    }

    fn push_drawn(&mut self, req: &Req, ahead: Ahead<'_>, top_n: u32, mask: Option<u32>) {
        let (ahead, drafts) = ahead.parts();
        let counts_begin = index(self.token_counts.len());
        let counts = req.penalties.token_counts(drafts);
        self.token_counts.extend(counts);
        let bias_begin = index(self.logit_bias.len());
        let params = &req.sampling;
        let biases = params.logit_bias.iter();
        self.logit_bias
            .extend(biases.map(|&(token, bias)| LogitBias { token, bias }));
        if mask.is_none() {
            let banned = req.stop.banned(req.output_len() + ahead);
            self.logit_bias.extend(banned.map(|token| LogitBias {
                token,
                bias: f32::NEG_INFINITY,
            }));
        }
        let mut row = SamplingRow {
            temperature: params.temperature,
            top_k: u32::try_from(params.top_k).unwrap_or(0),
            top_p: params.top_p,
            min_p: params.min_p,
            repetition_penalty: params.repetition_penalty,
            presence_penalty: params.presence_penalty,
            frequency_penalty: params.frequency_penalty,
            choice: req.choice,
            position: index(req.tokens.len() + ahead),
            top_n,
            counts_begin,
            counts_end: index(self.token_counts.len()),
            bias_begin,
            bias_end: index(self.logit_bias.len()),
            mask: mask.unwrap_or(NO_MASK),
            ..SamplingRow::greedy()
        };
        row.set_seed(req.seed);
        self.push(row);
    }

    /// A row that reports the model's probability of `token`, without penalties.
    pub(crate) fn push_given(&mut self, token: u32, top_n: u32) {
        self.push(SamplingRow {
            given: token,
            top_n,
            ..SamplingRow::greedy()
        });
    }

    /// Has the last row report the log probabilities of `tokens`, too.
    pub(crate) fn ask(&mut self, tokens: &Arc<[u32]>) {
        if !tokens.is_empty() {
            self.asked.push((self.rows.len() - 1, Arc::clone(tokens)));
        }
    }

    /// The longest list of asked tokens, and a table with so many columns for each row.
    pub(crate) fn asked_table(&self) -> (usize, Vec<u32>) {
        let lens = self.asked.iter().map(|(_, tokens)| tokens.len());
        let columns = lens.max().unwrap_or(0);
        let mut table = vec![NO_TOKEN; self.rows.len() * columns];
        for (row, tokens) in &self.asked {
            table[row * columns..][..tokens.len()].copy_from_slice(tokens);
        }
        (columns, table)
    }

    /// A row whose result is discarded.
    pub(crate) fn push_padding(&mut self) {
        self.push(SamplingRow::greedy());
    }

    /// Rounds the lists up, with entries that belong to no row.
    pub(crate) fn pad_lists(&mut self) {
        let padded = |len: usize| if len == 0 { 0 } else { len.next_power_of_two() };
        let (counts, biases) = (&mut self.token_counts, &mut self.logit_bias);
        counts.resize(padded(counts.len()), TokenCount::zeroed());
        biases.resize(padded(biases.len()), LogitBias::zeroed());
    }

    fn push(&mut self, row: SamplingRow) {
        self.top_n_max = self.top_n_max.max(row.top_n as usize);
        self.rows.push(row);
    }
}

fn index(len: usize) -> u32 {
    u32::try_from(len).expect("a step has fewer than 2^32 rows, counts and positions")
}
