//! Stop string filter of one choice: holds text back while it may be the start of a stop string,
//! and removes the stop string itself.

/// Pure; the engine decides where an answer ends, this filter when its text is sent.
#[derive(Debug)]
pub(crate) struct StopStringFilter {
    stops: Vec<String>,
    /// SGLang's `no_stop_trim`: the stop string stays in the answer.
    keep_stop: bool,
    /// Decoded but not yet sent; begins at a character boundary.
    held: String,
}

// === impl StopStringFilter ===

impl StopStringFilter {
    pub(crate) fn new(stops: Vec<String>, keep_stop: bool) -> Self {
        Self {
            stops,
            keep_stop,
            held: String::new(),
        }
    }

    /// Takes newly decoded text; returns what may be sent.
    pub(crate) fn push(&mut self, decoded: &str) -> String {
        if self.stops.is_empty() || self.keep_stop {
            return decoded.to_owned();
        }
        self.held.push_str(decoded);
        let shown_to = self.first_possible_stop();
        self.held.drain(..shown_to).collect()
    }

    /// Takes the last decoded text; returns the rest, without the stop string that ended it.
    pub(crate) fn finish(&mut self, decoded: &str, matched_stop: Option<&str>) -> String {
        let mut rest = std::mem::take(&mut self.held);
        rest.push_str(decoded);
        let stop_at = matched_stop.and_then(|stop| rest.find(stop));
        if let Some(at) = stop_at.filter(|_| !self.keep_stop) {
            rest.truncate(at);
        }
        rest
    }

    /// Where in `held` a stop string begins, or may begin once more text arrives.
    fn first_possible_stop(&self) -> usize {
        let starts = self.held.char_indices().map(|(at, _)| at);
        let may_stop = |at: &usize| {
            let rest = &self.held[*at..];
            self.stops
                .iter()
                .any(|stop| rest.starts_with(stop.as_str()) || stop.starts_with(rest))
        };
        starts.into_iter().find(may_stop).unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests;
