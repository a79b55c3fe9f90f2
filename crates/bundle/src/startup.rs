//! The bundle in force when a process starts.
//!
//! The record names versions. In force is the last one that can be read, whose signer is still
//! trusted, and that is valid with the current local configuration. If no version qualifies, the
//! member starts with the local configuration alone, and logs why it skipped each version.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use api::EventKind;

use super::agent::{Agent, AgentStatus, DistributionMember, InitialState};
use super::bundle::Bundle;
use super::config::DistributionConfig;
use super::store::{self, BundleStore};
use ::config::{ConfigError, Problem};

/// Reads the bundle in force, without locking or changing the store.
///
/// # Errors
///
/// The path and the error of the record or the bundle.
pub(crate) fn read_bundle_in_force(
    config: &DistributionConfig,
) -> Result<Option<Arc<Bundle>>, String> {
    let record = store::read_record(&config.store_dir)?;
    let bundle = record
        .in_force()
        .map(|version| store::read_bundle(&config.store_dir, version, &config.keys));
    Ok(bundle.transpose()?.map(Arc::new))
}

/// Opens the store at the start of a process, and loads the last version that `load` accepts.
/// Returns the store, the result of `load` if it accepted a version, and log messages.
///
/// # Errors
///
/// The path and the error of the store.
fn start<C>(
    config: &DistributionConfig,
    load: impl Fn(&Arc<Bundle>) -> Result<C, String>,
) -> Result<(InitialState, Option<C>, Vec<String>), String> {
    let store = BundleStore::open(&config.store_dir)?;
    let mut record = store::read_record(&config.store_dir)?;
    let mut messages = Vec::new();
    if let Some(version) = record.mark_start() {
        let reason = record.refused.get(&version).cloned().unwrap_or_default();
        messages.push(format!("distribution: version {version} rolled back: {reason}"));
    }
    store.write_record(&record)?;
    for version in record.applied.iter().rev() {
        let bundle = store::read_bundle(&config.store_dir, *version, &config.keys).map(Arc::new);
        match bundle.and_then(|bundle| load(&bundle).map(|loaded| (bundle, loaded))) {
            Ok((bundle, loaded)) => {
                messages.push(format!("distribution: version {version} is in force"));
                return Ok((InitialState { store, bundle: Some(bundle) }, Some(loaded), messages));
            }
            Err(error) => {
                messages.push(format!("distribution: version {version} is not in force: {error}"));
            }
        }
    }
    Ok((InitialState { store, bundle: None }, None, messages))
}

/// The bundles of a member at its start, which its agent takes over.
#[derive(Debug)]
pub struct Startup<'c> {
    config: &'c DistributionConfig,
    initial: InitialState,
    messages: Vec<String>,
}

impl<'c> Startup<'c> {
    /// Opens the store, and loads the last version that `load` accepts; also returns its result.
    /// Without a `config` there is neither.
    ///
    /// # Errors
    ///
    /// The path and the error of the store.
    pub fn open<C>(
        config: Option<&'c DistributionConfig>,
        load: impl Fn(&Arc<Bundle>) -> Result<C, String>,
    ) -> Result<(Option<Self>, Option<C>), String> {
        let Some(config) = config else { return Ok((None, None)) };
        let (initial, loaded, messages) = start(config, load)?;
        Ok((Some(Self { config, initial, messages }), loaded))
    }

    /// Starts the agent of `member`, which reports each change of a version's state by `publish`;
    /// `status` gets the log messages of the start.
    ///
    /// # Errors
    ///
    /// The I/O error of the store or of the thread's creation.
    pub fn start_agent(
        self,
        member: Arc<dyn DistributionMember>,
        status: &Arc<AgentStatus>,
        publish: impl Fn(EventKind) + Send + 'static,
    ) -> io::Result<Agent> {
        status.queue_messages(self.messages);
        Agent::start(self.config, self.initial, member, Arc::clone(status), publish)
    }
}

/// Returns the text of a role's configuration file in a bundle, and its name for error messages.
///
/// # Errors
///
/// [`ConfigError`] if the bundle has no such file or the file is not UTF-8.
pub fn role_file<'b>(
    bundle: &'b Bundle,
    name: &'static str,
) -> Result<(&'b str, PathBuf), ConfigError> {
    let version = bundle.header().version;
    let error = |what: &str| ConfigError::Invalid {
        path: format!("bundle {version}").into(),
        problems: vec![Problem { line: 1, key: name, what: what.to_owned() }],
    };
    let bytes = bundle.file(name).ok_or_else(|| {
        error("missing in the bundle, which has no policy for this role: pack it, or set another source")
    })?;
    let text = std::str::from_utf8(bytes).map_err(|_| error("not valid UTF-8"))?;
    Ok((text, format!("bundle {version}: {name}").into()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::super::bundle::{BundleHeader, pack};
    use super::super::key::SecretKey;
    use super::super::share::CanaryShare;
    use super::*;

    fn bundle(version: u64, files: &[(&str, &str)], key: &SecretKey) -> Bundle {
        let header = BundleHeader::new(version, 1, CanaryShare::ALL);
        let file = |(name, text): &(&str, &str)| ((*name).to_owned(), text.as_bytes().to_vec());
        let files: BTreeMap<_, _> = files.iter().map(file).collect();
        Bundle::open(pack(&header, &files, key).unwrap(), None).unwrap()
    }

    #[test]
    fn member_starts_with_the_last_valid_version() {
        let folder = std::env::temp_dir().join(format!("fingerpost-begin-{}", std::process::id()));
        let key = SecretKey::from_seed([4; 32]);
        let text = format!("source = 'x'\npublic_keys = ['{}']\nstore_dir = '/x'\n", key.public());
        let raw = toml::from_str(&text).unwrap();
        let config =
            DistributionConfig::check(raw, "/".as_ref(), &mut ::config::Checker::new(&text));
        let config = DistributionConfig { store_dir: folder.clone(), ..config };
        assert!(read_bundle_in_force(&config).unwrap().is_none());
        let load = |bundle: &Arc<Bundle>| match bundle.file("bad") {
            None => Ok(bundle.header().version),
            Some(_) => Err("not valid here".to_owned()),
        };
        let (initial, loaded, messages) = start(&config, load).unwrap();
        assert!(loaded.is_none() && messages.is_empty() && initial.bundle.is_none());
        let mut record = store::read_record(&folder).unwrap();
        for version in 1..=3 {
            let bad = [("gate.toml", "x"), ("bad", "")];
            let files = if version == 3 { &bad[..] } else { &bad[..1] };
            initial.store.write_bundle(&bundle(version, files, &key)).unwrap();
            record.start_trial(version);
            record.confirm();
        }
        initial.store.write_record(&record).unwrap();
        assert!(start(&config, load).is_err(), "the store is locked");
        drop(initial);
        let (initial, loaded, messages) = start(&config, load).unwrap();
        assert_eq!(loaded, Some(2));
        assert_eq!(initial.bundle.unwrap().header().version, 2);
        let expect = ["version 3 is not in force: not valid here", "version 2 is in force"];
        assert_eq!(messages, expect.map(|text| format!("distribution: {text}")));
        drop(initial.store);
        // Version 2 is damaged in the store, and version 4 crashes the process.
        fs::write(folder.join("2.bundle"), b"FPBUNDLE").unwrap();
        record.drop_current();
        record.start_trial(4);
        let store = BundleStore::open(&folder).unwrap();
        store.write_bundle(&bundle(4, &[("gate.toml", "x")], &key)).unwrap();
        store.write_record(&record).unwrap();
        drop(store);
        for expect in [Some(4), Some(1), Some(1)] {
            assert_eq!(start(&config, load).unwrap().1, expect);
        }
        assert!(
            store::read_record(&folder).unwrap().refused[&4].contains("the process died 2 times")
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
