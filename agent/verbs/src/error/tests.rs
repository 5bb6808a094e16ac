//! What an operator reads about a failed call.

use super::*;

#[test]
fn an_error_names_call_object_reason_and_remedy() {
    let error = CallError::new("ibv_reg_mr", "mlx5_0", libc::ENOMEM);
    let text = error.to_string();
    for part in ["ibv_reg_mr", "mlx5_0", "Cannot allocate memory", "memlock"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn returned_codes_of_either_sign_are_one_errno() {
    for code in [libc::EINVAL, -libc::EINVAL] {
        assert_eq!(
            CallError::new("ibv_modify_qp", "rxe0", code).errno,
            Errno::INVAL
        );
    }
}

#[test]
fn a_removed_device_and_a_missing_feature_are_distinguished() {
    let gone = CallError::new("ibv_query_port", "rxe0", libc::EIO);
    assert!(gone.is_device_gone() && !gone.is_unsupported());
    let lacking = CallError::new("ibv_reg_dmabuf_mr", "rxe0", libc::EOPNOTSUPP);
    assert!(lacking.is_unsupported() && !lacking.is_device_gone());
}
