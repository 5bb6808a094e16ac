//! Flags as a command line has them.

#[derive(Default)]
pub(crate) struct Args(pub(crate) Vec<String>);

// === impl Args ===

impl Args {
    pub(crate) fn flag(&mut self, name: &str, value: impl Into<String>) {
        self.0.extend([format!("--{name}"), value.into()]);
    }

    pub(crate) fn switch(&mut self, name: &str) {
        self.0.push(format!("--{name}"));
    }

    /// Gives a flag another value, or adds it.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        let flag = format!("--{name}");
        let at = self.0.iter().position(|arg| *arg == flag);
        match at.and_then(|at| self.0.get_mut(at + 1)) {
            Some(old) => *old = value.into(),
            None => self.flag(name, value),
        }
    }

    pub(super) fn optional(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.flag(name, value),
            None => self.switch(name),
        }
    }
}
