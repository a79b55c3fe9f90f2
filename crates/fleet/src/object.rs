//! An object of the object store, read by direct gets: without a consumer.
//!
//! The last message of `$O.BUCKET.M.NAME` describes the object; its chunks are the messages of
//! `$O.BUCKET.C.ID`, in order. An object that was replaced meanwhile has lost its chunks: the caller reads
//! it again.

use async_nats::jetstream::stream::{DirectGetError, DirectGetErrorKind, Stream};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// The part of an object's description that a reader needs (ADR-20).
#[derive(Debug, Deserialize)]
struct Description {
    nuid: String,
    size: usize,
    #[serde(default)]
    deleted: bool,
}

/// Reads an object of at most `max_bytes`.
///
/// # Errors
///
/// The reason: a missing object or chunk, a larger object, another digest, or an error of the servers.
pub(crate) async fn read_object(
    stream: &Stream<()>,
    bucket: &str,
    name: &str,
    max_bytes: usize,
) -> Result<Vec<u8>, String> {
    let subject = format!("$O.{bucket}.M.{}", URL_SAFE.encode(name));
    let message = stream.direct_get_last_for_subject(subject).await;
    let message = message.map_err(|error| format!("object {name}: {error}"))?;
    let description: Description = serde_json::from_slice(&message.payload)
        .map_err(|error| format!("the description of object {name}: {error}"))?;
    if description.deleted {
        return Err(format!("object {name} is deleted"));
    }
    if description.size > max_bytes {
        return Err(format!(
            "object {name} has {} bytes, more than the limit of {max_bytes}",
            description.size
        ));
    }
    let chunks = format!("$O.{bucket}.C.{}", description.nuid);
    let (mut bytes, mut sequence) = (Vec::with_capacity(description.size), 1);
    while bytes.len() < description.size {
        let chunk = stream.direct_get_next_for_subject(chunks.clone(), Some(sequence)).await;
        let chunk = chunk.map_err(|error| format!("a chunk of object {name}: {error}"))?;
        if chunk.sequence < sequence || chunk.payload.is_empty() {
            return Err(format!("the chunks of object {name} are not in order"));
        }
        sequence = chunk.sequence + 1;
        bytes.extend_from_slice(&chunk.payload);
    }
    if bytes.len() > description.size {
        return Err(format!("object {name} is longer than its description states"));
    }
    Ok(bytes)
}

/// Returns SHA-256 in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether the stream has no message of the subject.
pub(crate) fn is_not_found(error: &DirectGetError) -> bool {
    matches!(error.kind(), DirectGetErrorKind::NotFound)
}
