//! What is in force when a process starts, and whether a bundle can be sound anywhere.
//!
//! The record names versions; the last that can be read, whose signer is still trusted, and that
//! is sound with the local file as it is now, is in force. Where none is, it is the local file
//! alone: a member always starts, and says what it could not start with.

use std::path::PathBuf;
use std::sync::Arc;

use super::agent::Begun;
use super::bundle::Bundle;
use super::config::Settings;
use super::kept::{self, Kept};
use crate::config::{ConfigError, Problem};
use crate::{grantor, vantage};

/// Returns the bundle in force, for who only looks.
///
/// # Errors
///
/// Says what cannot be read.
pub(crate) fn in_force(settings: &Settings) -> Result<Option<Arc<Bundle>>, String> {
    let record = kept::record(&settings.keep)?;
    let bundle = record.in_force().map(|it| kept::bundle(&settings.keep, it, &settings.keys));
    Ok(bundle.transpose()?.map(Arc::new))
}

/// Begins a process: takes the folder, and finds the last version that `sound` makes something
/// of. Returns that, if there is one, and what is to be said.
///
/// # Errors
///
/// Says why the folder cannot be worked with.
pub(crate) fn begin<C>(
    settings: &Settings,
    sound: impl Fn(&Arc<Bundle>) -> Result<C, String>,
) -> Result<(Begun, Option<C>, Vec<String>), String> {
    let kept = Kept::open(&settings.keep)?;
    let mut record = kept::record(&settings.keep)?;
    let mut said = Vec::new();
    if let Some(gone) = record.begin() {
        let why = record.refused.get(&gone).cloned().unwrap_or_default();
        said.push(format!("distribution: version {gone} rolled back: {why}"));
    }
    kept.save(&record)?;
    for version in record.held.iter().rev() {
        let bundle = kept::bundle(&settings.keep, *version, &settings.keys).map(Arc::new);
        match bundle.and_then(|bundle| sound(&bundle).map(|made| (bundle, made))) {
            Ok((bundle, made)) => {
                said.push(format!("distribution: version {version} is in force"));
                return Ok((Begun { kept, bundle: Some(bundle) }, Some(made), said));
            }
            Err(error) => {
                said.push(format!("distribution: version {version} is not in force: {error}"));
            }
        }
    }
    Ok((Begun { kept, bundle: None }, None, said))
}

/// Returns the text of a role's file in a bundle, and what it is called in errors.
///
/// # Errors
///
/// [`ConfigError`], where there is none or it is no text.
pub(crate) fn text<'b>(
    bundle: &'b Bundle,
    name: &'static str,
) -> Result<(&'b str, PathBuf), ConfigError> {
    let version = bundle.header().version;
    let wrong = |what: &str| ConfigError::Sense {
        path: format!("bundle {version}").into(),
        problems: vec![Problem { line: 1, key: name, what: what.to_owned() }],
    };
    let bytes = bundle.file(name).ok_or_else(|| {
        wrong("there is none, so that nothing in it is for this member: pack one, or name another source")
    })?;
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("it is no text in UTF-8"))?;
    Ok((text, format!("bundle {version}: {name}").into()))
}

/// Judges all of a bundle that can be judged without a member's own configuration: returns what
/// it has something for.
///
/// # Errors
///
/// [`ConfigError`], with everything that is wrong.
pub fn survey(bundle: &Bundle) -> Result<Vec<&'static str>, ConfigError> {
    let mut roles = Vec::new();
    if bundle.file(vantage::config::IN_BUNDLE).is_some() {
        vantage::config::survey(bundle)?;
        roles.push("gates");
    }
    // Which has to be there if the other is not.
    if roles.is_empty() || bundle.file(grantor::config::IN_BUNDLE).is_some() {
        grantor::config::survey(bundle)?;
        roles.push("grantors");
    }
    Ok(roles)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::super::bundle::{Header, pack};
    use super::super::key::SecretKey;
    use super::super::share::Share;
    use super::*;

    fn bundle(version: u64, files: &[(&str, &str)], key: &SecretKey) -> Bundle {
        let header = Header { version, created: 1, canary: Share::ALL };
        let file = |(name, text): &(&str, &str)| ((*name).to_owned(), text.as_bytes().to_vec());
        let files: BTreeMap<_, _> = files.iter().map(file).collect();
        Bundle::open(pack(&header, &files, key).unwrap(), None).unwrap()
    }

    #[test]
    fn a_member_starts_with_the_last_version_that_is_sound() {
        let folder = std::env::temp_dir().join(format!("fingerpost-begin-{}", std::process::id()));
        let key = SecretKey::of([4; 32]);
        let text = format!("source = 'x'\npublic_keys = ['{}']\nkeep_dir = '/x'\n", key.public());
        let shape = toml::from_str(&text).unwrap();
        let settings = Settings::check(shape, "/".as_ref(), &mut |_, _, _| {});
        let settings = Settings { keep: folder.clone(), ..settings };
        assert!(in_force(&settings).unwrap().is_none());
        let sound = |bundle: &Arc<Bundle>| match bundle.file("bad") {
            None => Ok(bundle.header().version),
            Some(_) => Err("not sound here".to_owned()),
        };
        let (begun, made, said) = begin(&settings, sound).unwrap();
        assert!(made.is_none() && said.is_empty() && begun.bundle.is_none());
        let mut record = kept::record(&folder).unwrap();
        for version in 1..=3 {
            let bad = [("gate.toml", "x"), ("bad", "")];
            let files = if version == 3 { &bad[..] } else { &bad[..1] };
            begun.kept.keep(&bundle(version, files, &key)).unwrap();
            record.take(version);
            record.settle();
        }
        begun.kept.save(&record).unwrap();
        assert!(begin(&settings, sound).is_err(), "somebody has the folder");
        drop(begun);
        let (begun, made, said) = begin(&settings, sound).unwrap();
        assert_eq!(made, Some(2));
        assert_eq!(begun.bundle.unwrap().header().version, 2);
        let words = ["version 3 is not in force: not sound here", "version 2 is in force"];
        assert_eq!(said, words.map(|it| format!("distribution: {it}")));
        drop(begun.kept);
        // Damaged on the disk, and a version that kills the process.
        fs::write(folder.join("2.bundle"), b"FPBUNDLE").unwrap();
        record.lose();
        record.take(4);
        let kept = Kept::open(&folder).unwrap();
        kept.keep(&bundle(4, &[("gate.toml", "x")], &key)).unwrap();
        kept.save(&record).unwrap();
        drop(kept);
        for expect in [Some(4), Some(1), Some(1)] {
            assert_eq!(begin(&settings, sound).unwrap().1, expect);
        }
        assert!(kept::record(&folder).unwrap().refused[&4].contains("the process died 2 times"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_can_be_sound_nowhere_is_not_packed() {
        let key = SecretKey::of([4; 32]);
        let judged =
            |files: &[(&str, &str)]| survey(&bundle(7, files, &key)).map_err(|e| e.to_string());
        let gate = "[[grantors]]\nname = 's'\nmembers = [{ address = '10.9.1.1', sender = 9 }]\n\
                    [[policy]]\nprefix = '192.0.2.0/24'\ngrantors = 's'\n[allow]\nfile = 'allow.txt'\n\
                    [block]\nfile = 'allow.txt'\nprefixes = ['10.0.0.0/8']\n";
        let grantor =
            "[policy]\nfile = 'p/policy.lua'\n[[list]]\nname = 'deny'\nfile = 'deny.txt'\n";
        let lua = "local deny = list 'deny'\nfunction decide(p) return decline(5) end";
        let good = [
            ("gate.toml", gate),
            ("grantor.toml", grantor),
            ("p/policy.lua", lua),
            ("deny.txt", "192.0.2.0/24"),
            ("allow.txt", "10.0.0.1"),
        ];
        assert_eq!(judged(&good), Ok(vec!["gates", "grantors"]));
        assert_eq!(judged(&good[1..]), Ok(vec!["grantors"]));
        let with = |name: &str, text: &'static str| {
            judged(&good.map(|(have, was)| (have, if have == name { text } else { was })))
        };
        for (name, text, says) in [
            (
                "gate.toml",
                "[front]\ninterface = 'x'\n",
                "bundle 7: gate.toml:1:2: unknown field `front`",
            ),
            ("gate.toml", "[[policy]]\nprefix = 'x'\n", "bundle 7: gate.toml:2: policy.prefix"),
            ("gate.toml", "", "bundle 7: gate.toml:1: policy: there is none"),
            (
                "grantor.toml",
                "[policy]\nfile = 'none.lua'\n",
                "grantor.toml:2: policy.file: none.lua: it is not in",
            ),
            ("p/policy.lua", "function decide(", "grantor.toml:2: policy.file: "),
            (
                "p/policy.lua",
                "local x = list 'none'\nfunction decide(p) end",
                "no list named `none`",
            ),
            (
                "p/policy.lua",
                "function decide(p) if p.ttl > 99 then return grnat { rate = 5 } end end",
                "grantor.toml:2: policy.file: policy:1: undefined global `grnat`",
            ),
            (
                "p/policy.lua",
                "function decide(p) while p.dst_port == 4711 do end end",
                "policy.file: decide fails for a made-up packet, TCP SYN to port 4711 over IPv4",
            ),
            ("deny.txt", "nowhere", "list.file: deny.txt: line 1: \"nowhere\""),
            ("allow.txt", "nowhere", "allow.file: allow.txt: line 1: \"nowhere\""),
        ] {
            let error = with(name, text).unwrap_err();
            assert!(error.contains(says), "{says:?} is not in: {error}");
        }
        let error = judged(&[("policy.lua", lua)]).unwrap_err();
        assert!(error.contains("bundle 7:1: grantor.toml: there is none"), "{error}");
    }
}
