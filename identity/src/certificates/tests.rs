//! Facts about certificates, as a parser that is not ours reads them.

use super::*;
use crate::identity::tests::mk_keyring;
use x509_parser::prelude::{
    BasicConstraints, FromDer, GeneralName, ParsedExtension, X509Certificate,
};

const NOW: u64 = 1_800_000_000;

fn extension<'a>(certificate: &'a X509Certificate<'_>, name: &str) -> &'a ParsedExtension<'a> {
    let extension = certificate.extensions().iter().find(|extension| {
        let debug = format!("{:?}", extension.parsed_extension());
        debug.starts_with(name)
    });
    extension
        .map(|e| e.parsed_extension())
        .unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn a_process_has_a_day_a_fixed_name_and_both_uses() {
    let authority = mk_keyring([1]).authorities().next().unwrap();
    let leaf = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
    let der = authority.issue(&leaf, now);
    let (rest, certificate) = X509Certificate::from_der(&der).unwrap();
    assert!(rest.is_empty());

    let id = PeerId::of(certificate.public_key().raw);
    assert_eq!(certificate.subject().to_string(), format!("CN={id}"));
    let issuer = format!("CN=pdserve deployment key {}", authority.id());
    assert_eq!(certificate.issuer().to_string(), issuer);
    let now = i64::try_from(NOW).unwrap();
    assert_eq!(certificate.validity().not_before.timestamp(), now - 3600);
    assert_eq!(
        certificate.validity().not_after.timestamp(),
        now + 24 * 3600
    );
    let names = &certificate
        .subject_alternative_name()
        .unwrap()
        .unwrap()
        .value
        .general_names;
    assert_eq!(*names, [GeneralName::DNSName(PEER_NAME)]);
    let uses = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(uses.server_auth && uses.client_auth && !uses.any && uses.other.is_empty());
    let usage = certificate.key_usage().unwrap().unwrap().value;
    assert_eq!(usage.flags, 1, "digital signature");
    assert!(!certificate.is_ca());
    let ParsedExtension::AuthorityKeyIdentifier(_) = extension(&certificate, "AuthorityKey") else {
        panic!("the authority is named");
    };
    assert!(
        certificate.raw_serial().len() <= 20,
        "RFC 5280, section 4.1.2.2"
    );
}

#[test]
fn an_authority_signs_processes_only() {
    let authority = mk_keyring([1]).authorities().next().unwrap();
    let der = authority.certificate();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let constraints = certificate.basic_constraints().unwrap().unwrap().value;
    let leaves_only = BasicConstraints {
        ca: true,
        path_len_constraint: Some(0),
    };
    assert_eq!(*constraints, leaves_only);
    let usage = certificate.key_usage().unwrap().unwrap().value;
    assert!(usage.key_cert_sign() && !usage.digital_signature());
    assert_eq!(
        authority.certificate(),
        der,
        "it is the same in every process"
    );
}

#[test]
fn a_renewal_has_a_serial_number_of_its_own() {
    let authority = mk_keyring([1]).authorities().next().unwrap();
    let leaf = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let serial = |now| {
        let der = authority.issue(&leaf, UnixTime::since_unix_epoch(Duration::from_secs(now)));
        X509Certificate::from_der(&der)
            .unwrap()
            .1
            .raw_serial()
            .to_vec()
    };
    assert_ne!(serial(NOW), serial(NOW + 1));
}

#[test]
fn a_clock_before_1970_or_at_it_makes_a_certificate() {
    let authority = mk_keyring([1]).authorities().next().unwrap();
    let leaf = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let der = authority.issue(&leaf, UnixTime::since_unix_epoch(Duration::ZERO));
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(certificate.validity().not_before.timestamp(), 0);
}
