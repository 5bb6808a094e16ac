//! Pages of a probe. Prefill's hold their own position, so that a misplaced byte is detected.

use anyhow::{Context, Result};
use pd_kv_transfer::{KvArgs, MetadataBuffers, Region};
use pd_protocol::layout::{KvCut, KvDtype, KvGroup, KvLayout, PAGE_ORDER};
use pd_protocol::metadata::MetadataLayout;

/// Bytes of a page in the layout below.
pub(super) const PAGE_BYTES: usize = 64 << 10;
const WORD_BYTES: usize = 8;
/// Odd, so that no two positions have the same word; its bytes differ, so that no shifted word
/// equals another.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

pub(super) struct Pool {
    pub(super) kv: KvArgs,
}

/// A byte that differs from what prefill sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "contents differ: page {page}, byte {offset} is {actual:#04x}, but prefill's page {src_page} has \
     {expected:#04x} there"
)]
pub(super) struct WrongByte {
    page: u32,
    src_page: u32,
    offset: usize,
    actual: u8,
    expected: u8,
}

// === impl Pool ===

impl Pool {
    /// Zeroed pages, and `rows` metadata rows, one per concurrently open room.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub(super) fn allocate(pages: u32, rows: u32) -> Result<Self> {
        let layout = layout(pages, rows);
        let bytes = pages as usize * PAGE_BYTES;
        let region = Region::allocate("pd-kv-probe", bytes)?;
        let metadata = MetadataBuffers::allocate(layout.metadata, rows)?;
        let pool = Self {
            kv: KvArgs {
                kv: vec![region],
                states: Vec::new(),
                metadata,
                layout,
            },
        };
        // Otherwise the system would commit the memory while a round is measured.
        pool.clear(0..pages)?;
        Ok(pool)
    }

    pub(super) fn pages(&self) -> u32 {
        self.kv.layout.pages
    }

    /// Prefill: fills every page.
    ///
    /// # Errors
    /// None: all pages are in the pool.
    pub(super) fn fill(&self) -> Result<()> {
        let mut bytes = vec![0; PAGE_BYTES];
        for page in 0..self.pages() {
            write_pattern(page, &mut bytes);
            self.write(page, &bytes)?;
        }
        Ok(())
    }

    /// Decode: clears the pages, so that the bytes of the last round do not pass for new ones.
    ///
    /// # Errors
    /// A page is outside the pool.
    pub(super) fn clear(&self, pages: impl IntoIterator<Item = u32>) -> Result<()> {
        let zeros = vec![0; PAGE_BYTES];
        pages
            .into_iter()
            .try_for_each(|page| self.write(page, &zeros))
    }

    /// Decode: whether page `dst_pages[i]` has every byte of prefill's page `src_pages[i]`.
    ///
    /// # Errors
    /// The first byte that differs.
    pub(super) fn check(&self, src_pages: &[u32], dst_pages: &[u32]) -> Result<()> {
        let mut expected = vec![0; PAGE_BYTES];
        let mut actual = vec![0; PAGE_BYTES];
        for (&src_page, &page) in src_pages.iter().zip(dst_pages) {
            write_pattern(src_page, &mut expected);
            self.kv.kv[0].read(offset(page), &mut actual)?;
            if actual != expected {
                let mut pairs = actual.iter().zip(&expected);
                let offset = pairs.position(|(a, e)| a != e);
                let offset = offset.context("pages that differ have a byte that differs")?;
                return Err(WrongByte {
                    page,
                    src_page,
                    offset,
                    actual: actual[offset],
                    expected: expected[offset],
                }
                .into());
            }
        }
        Ok(())
    }

    fn write(&self, page: u32, bytes: &[u8]) -> Result<()> {
        Ok(self.kv.kv[0].write(offset(page), bytes)?)
    }
}

fn offset(page: u32) -> u64 {
    u64::from(page) * PAGE_BYTES as u64
}

fn write_pattern(page: u32, bytes: &mut [u8]) {
    let first = u64::from(page) * (PAGE_BYTES / WORD_BYTES) as u64 + 1;
    for (place, word) in (first..).zip(bytes.chunks_exact_mut(WORD_BYTES)) {
        word.copy_from_slice(&place.wrapping_mul(MULTIPLIER).to_le_bytes());
    }
}

/// One layer of eight heads: 2 tensors × 16 slots × 64 dimensions × 4 bytes for each head.
fn layout(pages: u32, rows: u32) -> KvLayout {
    KvLayout {
        order: PAGE_ORDER.to_owned(),
        page_size: 16,
        pages,
        groups: vec![KvGroup {
            name: "full".to_owned(),
            dtype: KvDtype::Float32,
            head_dim: 64,
            tensors: 2,
            total_heads: 8,
            head_start: 0,
            heads: 8,
            cuts: vec![KvCut {
                first_layer: 0,
                layers: 1,
            }],
        }],
        states: Vec::new(),
        metadata: MetadataLayout {
            hidden_size: 0,
            hidden_dtype: KvDtype::Float32,
        },
        metadata_rows: rows,
    }
}

#[cfg(test)]
mod tests;
