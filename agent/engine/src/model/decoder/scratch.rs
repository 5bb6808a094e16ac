//! How much a layer needs of the workspace.

/// Elements per row that layers need while they compute. Layers share the memory, so a model needs
/// the most that any of them does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scratch {
    /// Of the mixer's first linear: q, k and v, and gates.
    pub(crate) projected: usize,
    /// Of q, k and v after a convolution.
    pub(crate) convolved: usize,
    /// Of what the mixer makes.
    pub(crate) mixed: usize,
    /// Of the feed-forward's inner rows.
    pub(crate) gated: usize,
    /// Of a latent and its key.
    pub(crate) latent: usize,
    /// Of queries as products with latents.
    pub(crate) absorbed: usize,
    /// Of what heads make of latents.
    pub(crate) attended: usize,
    /// Experts that a row may choose from.
    pub(crate) experts: usize,
    /// Experts that a row chooses.
    pub(crate) choices: usize,
    /// Of an expert's inner rows.
    pub(crate) expert_width: usize,
    /// There is an expert that all rows go through.
    pub(crate) shared: bool,
}

// === impl Scratch ===

impl Scratch {
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            projected: self.projected.max(other.projected),
            convolved: self.convolved.max(other.convolved),
            mixed: self.mixed.max(other.mixed),
            gated: self.gated.max(other.gated),
            latent: self.latent.max(other.latent),
            absorbed: self.absorbed.max(other.absorbed),
            attended: self.attended.max(other.attended),
            experts: self.experts.max(other.experts),
            choices: self.choices.max(other.choices),
            expert_width: self.expert_width.max(other.expert_width),
            shared: self.shared | other.shared,
        }
    }
}
