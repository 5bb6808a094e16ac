//! JSON objects by the names of their fields. `serde_json` keeps the order in which fields came, or that of their names,
//! as any crate of a build asks it to; what is hashed, stored or reported is the same in all.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The same JSON with all fields in the order of their names.
pub fn sorted(mut json: Value) -> Value {
    json.sort_all_objects();
    json
}

/// The fields in the order of their names.
pub fn by_name(fields: &Map<String, Value>) -> BTreeMap<&String, &Value> {
    fields.iter().collect()
}
