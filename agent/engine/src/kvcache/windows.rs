//! `Windows`: the pages of the window space. A request has those from the first that its next step reads up to its end,
//! its [`WindowRow`]; what its window has left behind goes back once the steps that read it have ended.
//!
//! ```text
//! tokens    [ ................ | kv.len - window .... kv.len | in flight ... ]
//! pages     [ given back ..... )[ first .............................. end() )
//! ```
//! Where prefixes are cached, a window page is cached beside the page of the full space that holds the same tokens, until
//! it is evicted by itself or with that page. A request can go on behind a cached prefix if the window before its end is
//! there. SGLang's `SWARadixCache`.

use super::allocator::{Allocator, Counts, Owner};
use super::spaces::Spaces;
use super::{PageIdx, WindowPageIdx};
use std::collections::{BTreeSet, HashMap, VecDeque};

#[derive(Debug)]
pub(crate) struct Windows {
    spaces: Spaces,
    pages: Allocator<WindowPageIdx>,
    cached: HashMap<PageIdx, CachedPage>,
    /// Cached pages that no request uses, by last use, and by place, so that the end of a sequence stays of use.
    evictable: BTreeSet<(u64, usize, PageIdx)>,
    /// Counts uses instead of time.
    clock: u64,
}

#[derive(Debug)]
struct CachedPage {
    page: WindowPageIdx,
    /// Rows that have it.
    locks: u32,
    /// 0: of the middle of a prompt, where no request has gone on.
    last_use: u64,
    /// Pages before it in the sequence.
    place: usize,
}

/// A request's pages of the window space: those at the places `[first, first + pages.len())` of its sequence.
#[derive(Debug, Default)]
pub(crate) struct WindowRow {
    first: usize,
    /// Places before it are of a prefix that was cached when the request began, so that others may go on there.
    known: usize,
    pages: VecDeque<RowPage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowPage {
    page: WindowPageIdx,
    owner: RowOwner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowOwner {
    /// The request, alone.
    Request,
    /// The cache, beside this page of the full space; the row has a lock on it.
    Cache(PageIdx),
}

// === impl WindowRow ===

impl WindowRow {
    /// The place behind its last page.
    pub(crate) fn end(&self) -> usize {
        self.first + self.pages.len()
    }

    /// # Panics
    /// If the page at the place was given back, or is not there yet.
    pub(crate) fn page(&self, place: usize) -> WindowPageIdx {
        let nth = place.checked_sub(self.first);
        let page = nth.and_then(|nth| self.pages.get(nth));
        page.expect("a page of the window is there").page
    }

    /// Nothing where it was given back.
    pub(crate) fn live_page(&self, place: usize) -> Option<WindowPageIdx> {
        let page = self.pages.get(place.checked_sub(self.first)?)?;
        Some(page.page)
    }

    /// Its pages before the place `end`.
    pub(crate) fn pages_before(&self, end: usize) -> Vec<WindowPageIdx> {
        let pages = self.pages.iter().take(end.saturating_sub(self.first));
        pages.map(|page| page.page).collect()
    }
}

// === impl Windows ===

impl Windows {
    pub(crate) fn new(num_pages: usize, spaces: Spaces) -> Self {
        Self {
            spaces,
            pages: Allocator::new(num_pages),
            cached: HashMap::new(),
            evictable: BTreeSet::new(),
            clock: 0,
        }
    }

    /// Pages that can be allocated, by eviction if necessary.
    pub(crate) fn available(&self) -> usize {
        self.pages.free_len() + self.evictable.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.pages.counts()
    }

    /// Cached pages that some request uses.
    pub(crate) fn locked(&self) -> usize {
        self.cached.len() - self.evictable.len()
    }

    pub(crate) fn unlocked(&self) -> usize {
        self.evictable.len()
    }

    #[cfg(test)]
    pub(crate) fn all_free(&self) -> std::collections::HashSet<WindowPageIdx> {
        self.pages.all_free()
    }

    /// The row of a request that goes on behind the longest part of a cached prefix, `prefix`, before whose end the
    /// window is cached.
    pub(crate) fn begin(&mut self, prefix: &[PageIdx]) -> WindowRow {
        let end = self.reusable(prefix);
        let first = self.spaces.first_seen(end * self.spaces.page_size);
        self.clock += 1;
        let found = prefix[first..end].iter();
        WindowRow {
            first,
            known: prefix.len(),
            pages: found.map(|&page| self.lock(page)).collect(),
        }
    }

    /// The row of a request whose first `len` tokens will be received.
    pub(crate) fn begin_received(&self, len: usize) -> WindowRow {
        WindowRow {
            first: self.spaces.first_seen(len),
            known: 0,
            pages: VecDeque::new(),
        }
    }

    /// Pages of `prefix` behind which a request can go on.
    fn reusable(&self, prefix: &[PageIdx]) -> usize {
        let (mut reusable, mut run_start) = (0, 0);
        for (page, end) in prefix.iter().zip(1..) {
            if !self.cached.contains_key(page) {
                run_start = end;
            }
            if run_start <= self.spaces.first_seen(end * self.spaces.page_size) {
                reusable = end;
            }
        }
        reusable
    }

    /// Pages of a row that other rows have as well: of a prefix that was cached before.
    pub(crate) fn shared(&self, row: &WindowRow) -> usize {
        let found = row.pages.iter().take(row.known.saturating_sub(row.first));
        let is_shared = |page: &&RowPage| match page.owner {
            RowOwner::Request => false,
            RowOwner::Cache(beside) => self.cached[&beside].locks > 1,
        };
        found.filter(is_shared).count()
    }

    /// Additional pages that a row needs to hold `len` tokens.
    pub(crate) fn short(&self, row: &WindowRow, len: usize) -> usize {
        let places = len.div_ceil(self.spaces.page_size);
        places.saturating_sub(row.end())
    }

    /// Extends the row by `len` pages; `false`, without any effect, if there are too few.
    pub(crate) fn try_extend(&mut self, row: &mut WindowRow, len: usize) -> bool {
        if len > self.available() {
            return false;
        }
        while self.pages.free_len() < len {
            let (.., page) = self.evictable.pop_first().expect("it was counted above");
            self.drop_cached(page);
        }
        let mut taken = Vec::with_capacity(len);
        let is_taken = self.pages.try_alloc(len, &mut taken);
        assert!(is_taken, "evicted pages are free");
        row.pages.extend(taken.into_iter().map(|page| RowPage {
            page,
            owner: RowOwner::Request,
        }));
        true
    }

    /// Returns the row's pages from `end` on.
    pub(crate) fn truncate(&mut self, row: &mut WindowRow, end: usize) {
        let kept = end.saturating_sub(row.first).min(row.pages.len());
        let rest = row.pages.split_off(kept);
        let rest = rest.into_iter().rev();
        rest.for_each(|page| self.give_back(page, self.clock));
    }

    /// Returns what no step reads any more of a request whose first `len` tokens steps have computed: those in flight
    /// compute what follows them. Of what is cached it is evicted first, and so not in place of the ends of prompts,
    /// unless it was cached before.
    pub(crate) fn leave(&mut self, row: &mut WindowRow, len: usize) {
        let first = self.spaces.first_seen(len);
        self.clock += 1;
        while row.first < first {
            let page = row.pages.pop_front().expect("the row reaches there");
            let used = if row.first < row.known { self.clock } else { 0 };
            self.give_back(page, used);
            row.first += 1;
        }
    }

    /// Caches the row's pages of the full pages that hold the same tokens, `prefix` from its sequence's beginning.
    pub(crate) fn commit(&mut self, row: &mut WindowRow, prefix: &[PageIdx]) {
        self.clock += 1;
        let pages = row.pages.iter_mut().zip(row.first..);
        for (own, place) in pages.take_while(|(_, place)| *place < prefix.len()) {
            let beside = prefix[place];
            if own.owner != RowOwner::Request || self.cached.contains_key(&beside) {
                continue;
            }
            self.pages.set(own.page, Owner::Held, Owner::Cached);
            own.owner = RowOwner::Cache(beside);
            let cached = CachedPage {
                page: own.page,
                locks: 1,
                last_use: 0,
                place,
            };
            self.cached.insert(beside, cached);
        }
    }

    /// Returns all of a row.
    pub(crate) fn end(&mut self, row: WindowRow) {
        self.clock += 1;
        let pages = row.pages.into_iter().rev();
        pages.for_each(|page| self.give_back(page, self.clock));
    }

    /// Keeps all of an ended row from use until [`Self::release`].
    pub(crate) fn quarantine(&mut self, row: &WindowRow) {
        for page in row.pages.iter().filter(|page| page.is_own()) {
            self.pages.set(page.page, Owner::Held, Owner::Quarantined);
        }
    }

    /// Returns all of a row that was quarantined.
    pub(crate) fn release(&mut self, row: WindowRow) {
        for page in row.pages.iter().filter(|page| page.is_own()) {
            self.pages.set(page.page, Owner::Quarantined, Owner::Held);
        }
        self.end(row);
    }

    /// The pages of the full space have been evicted, and what was cached beside them is.
    pub(crate) fn forget(&mut self, evicted: &[PageIdx]) {
        for &page in evicted {
            if let Some(cached) = self.cached.get(&page) {
                assert_eq!(cached.locks, 0, "a page whose window is in use is locked");
                self.evictable
                    .remove(&(cached.last_use, cached.place, page));
                self.drop_cached(page);
            }
        }
    }

    fn give_back(&mut self, page: RowPage, used: u64) {
        match page.owner {
            RowOwner::Request => self.pages.free(&[page.page], Owner::Held),
            RowOwner::Cache(beside) => self.unlock(beside, used),
        }
    }

    fn drop_cached(&mut self, page: PageIdx) {
        let cached = self.cached.remove(&page).expect("it is cached");
        self.pages.free(&[cached.page], Owner::Cached);
    }

    fn lock(&mut self, page: PageIdx) -> RowPage {
        let cached = self.cached.get_mut(&page).expect("it was found");
        if cached.locks == 0 {
            self.evictable
                .remove(&(cached.last_use, cached.place, page));
        }
        cached.locks += 1;
        RowPage {
            page: cached.page,
            owner: RowOwner::Cache(page),
        }
    }

    fn unlock(&mut self, page: PageIdx, used: u64) {
        let cached = self.cached.get_mut(&page).expect("a locked page is there");
        cached.locks -= 1;
        cached.last_use = cached.last_use.max(used);
        if cached.locks == 0 {
            let place = (cached.last_use, cached.place, page);
            self.evictable.insert(place);
        }
    }
}

// === impl RowPage ===

impl RowPage {
    fn is_own(&self) -> bool {
        self.owner == RowOwner::Request
    }
}
