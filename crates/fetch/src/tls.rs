//! TLS: the trusted roots, and the reasons of a refused certificate.
//!
//! The roots are those of the system (`/etc/ssl/certs` on Debian, or `SSL_CERT_FILE` and
//! `SSL_CERT_DIR`), or those of one file in PEM. They are loaded at the first request to an `https`
//! URL and used by all later ones; a refused certificate drops them, so that the next request loads
//! them again, in case that an operator has added the missing root meanwhile.
//!
//! The cryptography is that of `ring`, which is passed explicitly: there is no default of the
//! process that another crate could set. TLS 1.2 and 1.3, the server's name is checked against the
//! certificate (RFC 9110, 4.3.4; RFC 9525); the client presents no certificate of its own.
//!
//! Limits: no revocation lists and no OCSP. A certificate that is its own authority (`CA:TRUE`, the
//! default of `openssl req -x509`) is refused as that of a server.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

use crate::error::FetchCause;

/// The source of the trusted roots, and the settings made of them.
#[derive(Default)]
pub(crate) struct TrustedRoots {
    /// A file in PEM; the system's roots without one.
    file: Option<PathBuf>,
    loaded: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for TrustedRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedRoots")
            .field("file", &self.file)
            .field("is_loaded", &self.loaded.is_some())
            .finish()
    }
}

impl TrustedRoots {
    pub(crate) fn from_file(file: PathBuf) -> Self {
        Self { file: Some(file), loaded: None }
    }

    /// Returns the settings of a connection; loads the roots if they are not.
    pub(crate) fn load(&mut self) -> Result<Arc<ClientConfig>, FetchCause> {
        if let Some(loaded) = &self.loaded {
            return Ok(Arc::clone(loaded));
        }
        let certificates = match &self.file {
            Some(file) => read_file(file),
            None => read_system(),
        };
        let loaded = Arc::new(configure(certificates.map_err(FetchCause::Roots)?)?);
        self.loaded = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Makes the next request load the roots again.
    pub(crate) fn unload(&mut self) {
        self.loaded = None;
    }
}

fn configure(certificates: Vec<CertificateDer<'static>>) -> Result<ClientConfig, FetchCause> {
    let mut roots = RootCertStore::empty();
    // The system's list may contain old certificates that the parser refuses.
    let (accepted, refused) = roots.add_parsable_certificates(certificates);
    if accepted == 0 {
        let reason = format!("none of the {refused} root certificates can be parsed");
        return Err(FetchCause::Roots(reason));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| FetchCause::Tls(error.to_string()))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn read_file(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed =
        |error: &dyn fmt::Display| format!("root certificates {}: {error}", file.display());
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file)
        .and_then(|certificates| certificates.collect())
        .map_err(|error| failed(&error));
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(failed(&"no certificate in PEM")),
        certificates => certificates,
    }
}

fn read_system() -> Result<Vec<CertificateDer<'static>>, String> {
    let loaded = rustls_native_certs::load_native_certs();
    if !loaded.certs.is_empty() {
        return Ok(loaded.certs);
    }
    let reason = loaded.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
    Err(format!(
        "the system has no root certificates{reason}: install the package ca-certificates, or set \
         SSL_CERT_FILE"
    ))
}

/// Returns the cause of a failed handshake, with a remedy for the certificates of private servers.
pub(crate) fn handshake_cause(error: &io::Error) -> FetchCause {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    let remedy = match tls {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            ": add its issuer to the trusted root certificates (update-ca-certificates)"
        }
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => ": renew it, or correct this machine's clock",
        Some(Error::InvalidCertificate(CertificateError::Other(other)))
            if other.to_string().contains("CaUsedAsEndEntity") =>
        {
            ": it is that of an authority (CA:TRUE); make one with CA:FALSE for the server"
        }
        Some(Error::InvalidMessage(_)) => ": does the server speak TLS at this port?",
        _ => "",
    };
    FetchCause::Tls(format!("TLS handshake: {error}{remedy}"))
}
