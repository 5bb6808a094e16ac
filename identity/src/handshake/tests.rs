//! Facts about what errors say.

use super::*;

fn io_error(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[test]
fn the_error_of_a_read_is_a_refusal_only_if_it_is_about_our_certificate() {
    for (alert, part) in [
        (Alert::UnknownCA, "compare the key files"),
        (Alert::BadCertificate, "compare the key files"),
        (Alert::DecryptError, "compare the key files"),
        (Alert::CertificateExpired, "check the clocks"),
    ] {
        let explained = HandshakeError::of_read(io_error(Error::AlertReceived(alert)));
        assert!(explained.to_string().contains(part), "{explained}");
        assert_eq!(explained.kind(), io::ErrorKind::InvalidData);
    }
    for error in [
        io_error(Error::AlertReceived(Alert::InternalError)),
        io_error(Error::DecryptError),
        io::ErrorKind::ConnectionReset.into(),
    ] {
        let before = format!("{error:?}");
        assert_eq!(format!("{:?}", HandshakeError::of_read(error)), before);
    }
}

#[test]
fn a_broken_connection_stays_one() {
    let error = HandshakeError::of_handshake(io::ErrorKind::ConnectionReset.into());
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let error = HandshakeError::of_handshake(io::ErrorKind::UnexpectedEof.into());
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("key file"), "{error}");
}
