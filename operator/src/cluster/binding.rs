//! What gives routers their role.

use super::apply::{Holder, Writer};
use super::error::ApplyError;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt;

/// Applies a binding. The role of one that exists cannot be changed, as an operator of another
/// release would: such a binding is made again.
pub(crate) async fn bind(
    writer: &Writer<'_>,
    binding: &RoleBinding,
    holder: Holder,
) -> Result<(), ApplyError> {
    let known = &writer.context.index.bindings;
    match writer.apply_for(holder, binding, known).await {
        Err(ApplyError::Write { source, .. }) if names_another_role(&source) => {
            let name = binding.name_any();
            let stored = known.find(&writer.key_of(holder), &name);
            let uid = stored.map(|stored| stored.uid.clone());
            writer.remove::<RoleBinding>(&name, uid).await?;
            writer.apply_for(holder, binding, known).await
        }
        applied => applied,
    }
}

/// The apiserver's refusal to change `roleRef`.
fn names_another_role(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if status.code == 422 && status.message.contains("cannot change roleRef"))
}

#[cfg(test)]
mod tests {
    //! Facts about refusals.

    use super::*;
    use kube::core::Status;

    #[test]
    fn a_binding_is_made_again_for_another_role_only() {
        let refusal = |message: &str, code: u16| {
            let status = Status::failure(message, "Invalid").with_code(code);
            kube::Error::Api(status.boxed())
        };
        let role =
            "RoleBinding \"r\" is invalid: roleRef: Invalid value: {}: cannot change roleRef";
        assert!(names_another_role(&refusal(role, 422)));
        assert!(!names_another_role(&refusal(
            "subjects: Required value",
            422
        )));
        assert!(!names_another_role(&refusal("forbidden", 403)));
    }
}
