//! Handshakes with a deadline, and errors that say what the peer lacks and what to do.

use rustls::AlertDescription as Alert;
use rustls::{CertificateError, Error};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, sink};
use tokio::time::timeout;
use tokio_rustls::{Connect, FallibleAccept, client, server};

/// A handshake takes a round trip and a millisecond of CPU; what takes longer than this goes nowhere.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// A client that is refused reads why within this, or not at all.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);
/// As much of what it has sent is read meanwhile.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;

/// Why two processes did not meet; an [`io::Error`] holds it.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error(
        "the peer's certificate is of no key of this deployment ({0}); compare the key files of both: each must hold \
         the first key of the other"
    )]
    OtherKey(CertificateError),
    #[error(
        "the peer's certificate does not hold at this time ({0}); check the clocks of both hosts"
    )]
    Clock(CertificateError),
    #[error("the peer presented no certificate; give it the key file of this deployment")]
    NoCertificate,
    #[error(
        "the peer refused this process's certificate as one of no key of its deployment ({0:?}); compare the key files \
         of both: each must hold the first key of the other"
    )]
    RefusedKey(Alert),
    #[error(
        "the peer refused this process's certificate as one that does not hold at this time; check the clocks of both \
         hosts"
    )]
    RefusedClock,
    #[error("the peer speaks no TLS ({0}); give it the key file of this deployment")]
    Plaintext(Error),
    #[error(
        "the peer does not speak TLS 1.3 as pdserve does ({0}); let both be pdserve, of versions that go together"
    )]
    OtherTls(Error),
    #[error(
        "the peer closed the connection during the handshake; if it has no key file, give it that of this deployment"
    )]
    Closed,
    #[error("the peer did not finish the handshake within {} s", HANDSHAKE_LIMIT.as_secs())]
    Timeout,
}

pub(crate) async fn accept<IO>(handshake: FallibleAccept<IO>) -> io::Result<server::TlsStream<IO>>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (error, io) = match timeout(HANDSHAKE_LIMIT, handshake).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(failed)) => failed,
        Err(_) => return Err(HandshakeError::Timeout.into()),
    };
    if tls_error(&error).is_some_and(|error| !matches!(error, Error::AlertReceived(_))) {
        refuse(io).await;
    }
    Err(HandshakeError::of_handshake(error))
}

pub(crate) async fn connect<IO>(handshake: Connect<IO>) -> io::Result<client::TlsStream<IO>>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    match timeout(HANDSHAKE_LIMIT, handshake).await {
        Ok(connected) => connected.map_err(HandshakeError::of_handshake),
        Err(_) => Err(HandshakeError::Timeout.into()),
    }
}

/// Lets the client read the alert, which says why: closing with bytes unread would take it away.
async fn refuse<IO: AsyncRead + AsyncWrite + Unpin>(mut io: IO) {
    let read = async {
        io.shutdown().await?;
        copy(&mut io.take(REFUSAL_BYTES_MAX), &mut sink()).await
    };
    // The client may have gone.
    let _ = timeout(REFUSAL_LIMIT, read).await;
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

// === impl HandshakeError ===

impl HandshakeError {
    /// What the error of a read from [`Identity::connect`](crate::Identity::connect)'s stream means: the server may have
    /// refused this process. Others are given back as they are.
    pub fn of_read(error: io::Error) -> io::Error {
        match tls_error(&error) {
            Some(Error::AlertReceived(alert)) => match Self::of_alert(*alert) {
                Some(refused) => refused.into(),
                None => error,
            },
            _ => error,
        }
    }

    fn of_handshake(error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::Closed.into();
        }
        let Some(tls) = tls_error(&error) else {
            return error;
        };
        match Self::of_tls(tls) {
            Some(explained) => explained.into(),
            None => error,
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the others say it themselves"
    )]
    fn of_tls(error: &Error) -> Option<Self> {
        use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        Some(match error {
            Error::InvalidCertificate(
                why @ (Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }),
            ) => Self::Clock(why.clone()),
            Error::InvalidCertificate(why) => Self::OtherKey(why.clone()),
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::InvalidMessage(_) => Self::Plaintext(error.clone()),
            Error::PeerIncompatible(_) => Self::OtherTls(error.clone()),
            Error::AlertReceived(alert) => return Self::of_alert(*alert),
            _ => return None,
        })
    }

    /// As rustls and OpenSSL send them for certificates that they refuse.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the others say it themselves"
    )]
    fn of_alert(alert: Alert) -> Option<Self> {
        match alert {
            Alert::UnknownCA
            | Alert::DecryptError
            | Alert::BadCertificate
            | Alert::CertificateUnknown => Some(Self::RefusedKey(alert)),
            Alert::CertificateExpired => Some(Self::RefusedClock),
            Alert::ProtocolVersion => Some(Self::OtherTls(Error::AlertReceived(alert))),
            _ => None,
        }
    }
}

impl From<HandshakeError> for io::Error {
    fn from(error: HandshakeError) -> Self {
        use HandshakeError as E;
        let kind = match error {
            E::Timeout => io::ErrorKind::TimedOut,
            E::Closed => io::ErrorKind::UnexpectedEof,
            E::OtherKey(_) | E::Clock(_) | E::NoCertificate => io::ErrorKind::InvalidData,
            E::RefusedKey(_) | E::RefusedClock => io::ErrorKind::InvalidData,
            E::Plaintext(_) | E::OtherTls(_) => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests;
