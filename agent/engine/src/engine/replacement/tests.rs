//! Facts about which checkpoints can take each other's place.

use super::*;
use crate::model::ModelFiles;
use std::path::Path;

fn form(model: &str) -> CheckpointForm {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    CheckpointForm::of(&ModelFiles::open(&golden.join(model)).unwrap())
}

fn refusal(running: &CheckpointForm, new: &CheckpointForm) -> String {
    let path = PathBuf::from("new");
    running.check(new, path).unwrap_err().to_string()
}

#[test]
fn the_same_network_can_take_its_own_place() {
    let llama = form("tiny-llama");
    assert!(llama.check(&form("tiny-llama"), "new".into()).is_ok());
}

#[test]
fn the_first_key_that_differs_is_named_with_both_values() {
    let llama = form("tiny-llama");
    let mut wider = form("tiny-llama");
    wider.config.ropes[0].theta *= 2.0;
    let said = refusal(&llama, &wider);
    assert!(
        said.contains("its configuration has ropes.0.theta 20000.0, that which runs has 10000.0"),
        "{said}"
    );
}

#[test]
fn a_tensor_of_another_shape_or_dtype_or_none_is_named() {
    let llama = form("tiny-llama");
    let mut quantised = form("tiny-llama");
    let name = quantised.tensors.keys().next().unwrap().clone();
    quantised.tensors.get_mut(&name).unwrap().dtype = "BF16".to_owned();
    let said = refusal(&llama, &quantised);
    assert!(said.contains(&format!("its tensor {name} is BF16 of ")));
    assert!(said.contains("that which runs has F32 of "), "{said}");

    let mut more = form("tiny-llama");
    let shape = more.tensors.values().next().unwrap().clone();
    more.tensors.insert("extra".to_owned(), shape);
    let said = refusal(&llama, &more);
    assert!(said.contains("tensor extra is F32"), "{said}");
    assert!(said.contains("that which runs has none"), "{said}");
}
