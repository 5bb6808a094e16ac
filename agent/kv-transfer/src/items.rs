//! Whether the pages, state items and row that a side names lie in its memory, and are as many as they must
//! be. Pure; an error says what is named.

use pd_protocol::layout::KvLayout;

pub(crate) fn check_pages(layout: &KvLayout, pages: &[u32]) -> Result<(), String> {
    match pages.iter().find(|&&page| page >= layout.pages) {
        Some(page) => Err(format!("page {page} where there are {}", layout.pages)),
        None => Ok(()),
    }
}

pub(crate) fn check_row(layout: &KvLayout, metadata_buffer_index: u32) -> Result<(), String> {
    if metadata_buffer_index < layout.metadata_rows {
        return Ok(());
    }
    let rows = layout.metadata_rows;
    Err(format!(
        "metadata row {metadata_buffer_index} where there are {rows}"
    ))
}

/// Pages of a request whose first `decode_prefix_len` tokens decode has, and for the rest of which it offers `offered`
/// pages.
pub(crate) fn request_pages(
    layout: &KvLayout,
    decode_prefix_len: u32,
    offered: usize,
) -> Result<usize, String> {
    let page_size = layout.page_size;
    if !decode_prefix_len.is_multiple_of(page_size) {
        return Err(format!(
            "what follows {decode_prefix_len} tokens where pages have {page_size}"
        ));
    }
    if decode_prefix_len > 0 && offered == 0 {
        return Err(format!(
            "no page behind {decode_prefix_len} tokens; the last page comes in any case"
        ));
    }
    Ok((decode_prefix_len / page_size) as usize + offered)
}

/// Items of each state of a request of `pages` pages.
pub(crate) fn check_states(
    layout: &KvLayout,
    states: &[Vec<u32>],
    pages: usize,
) -> Result<(), String> {
    if states.len() != layout.states.len() {
        let (named, has) = (states.len(), layout.states.len());
        return Err(format!(
            "{named} lists of items where there are {has} states"
        ));
    }
    for (state, items) in layout.states.iter().zip(states) {
        let (name, slots) = (&state.name, state.slots);
        if let Some(item) = items.iter().find(|&&item| item >= slots) {
            return Err(format!(
                "item {item} of state {name} where there are {slots}"
            ));
        }
        if !state.fits(items.len(), pages) {
            let count = items.len();
            return Err(format!(
                "{count} items of state {name} for a request of {pages} pages"
            ));
        }
    }
    Ok(())
}

/// Both sides have as many items of each state.
pub(crate) fn check_equal(
    layout: &KvLayout,
    prefill: &[Vec<u32>],
    decode: &[Vec<u32>],
) -> Result<(), String> {
    for ((state, p), d) in layout.states.iter().zip(prefill).zip(decode) {
        if p.len() != d.len() {
            let (name, p, d) = (&state.name, p.len(), d.len());
            return Err(format!(
                "{p} items of state {name} where decode has {d}; do both sides see the same prompt?"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
