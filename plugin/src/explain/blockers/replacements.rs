//! What running workers are having replaced: keys, and weights.

use crate::view::View;

/// A replacement of the peer keys that waits for processes, or for someone.
pub(super) fn rotation(view: &View) -> Vec<String> {
    let held = ("RotationHeld", "The rotation of its peer keys is held up");
    replacement(
        view,
        "PeerKeysRotated",
        held,
        "Its peer keys are being rotated",
    )
}

/// New weights that workers read or load, or cannot take.
pub(super) fn weights(view: &View) -> Vec<String> {
    let refused = ("WeightsRefused", "Its new weights are refused");
    replacement(
        view,
        "WeightsServed",
        refused,
        "Its weights are being replaced",
    )
}

/// What a condition says until it holds: how a sentence begins for a `reason`, and for others.
fn replacement(
    view: &View,
    condition: &str,
    (reason, held): (&str, &str),
    under_way: &str,
) -> Vec<String> {
    let condition = view.condition(condition);
    let unmet = condition.filter(|condition| condition.status == "False");
    let sentence = unmet.map(|condition| {
        let begins = if condition.reason == reason {
            held
        } else {
            under_way
        };
        format!("{begins}: {}.", condition.message)
    });
    sentence.into_iter().collect()
}
