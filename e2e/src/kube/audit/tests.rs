//! How the log is read.

use super::*;

const FIRST: &str = r#"{"kind":"Event","stage":"ResponseComplete","verb":"patch","user":{"username":"system:serviceaccount:pd:op"},"objectRef":{"resource":"pods","subresource":"status","namespace":"pd","name":"a"},"responseStatus":{"code":200}}"#;
const SECOND: &str = r#"{"verb":"create","user":{"username":"admin"},"objectRef":{"resource":"namespaces"},"responseStatus":{"code":409}}"#;

#[test]
fn writes_after_the_mark_come_with_user_and_answer() {
    let folder = tempfile::tempdir().unwrap();
    let log = AuditLog::new(&folder.path().join("audit.log"));
    let start = log.mark();
    fs::write(&log.path, format!("{FIRST}\n")).unwrap();
    let between = log.mark();
    fs::write(&log.path, format!("{FIRST}\n{SECOND}\n{{\"half")).unwrap();

    let all = log.writes_since(start).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(
        all[0],
        Write {
            user: "system:serviceaccount:pd:op".into(),
            verb: "patch".into(),
            resource: "pods/status".into(),
            namespace: "pd".into(),
            name: "a".into(),
            code: 200,
        }
    );
    let later = log.writes_since(between).unwrap();
    assert_eq!((later.len(), later[0].code), (1, 409));
}
