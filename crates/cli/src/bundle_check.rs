//! Checks of a bundle without a member's local configuration.

use bundle::Bundle;
use config::ConfigError;

/// Checks a bundle as far as possible without a member's local configuration. Returns the roles it
/// has a policy for.
///
/// # Errors
///
/// [`ConfigError`], with all problems.
pub(crate) fn check_bundle(bundle: &Bundle) -> Result<Vec<&'static str>, ConfigError> {
    let mut roles = Vec::new();
    if bundle.file(gatekeeper::config::IN_BUNDLE).is_some() {
        gatekeeper::config::check_bundle(bundle)?;
        roles.push("gates");
    }
    // A bundle needs the file of at least one role.
    if roles.is_empty() || bundle.file(grantor::config::IN_BUNDLE).is_some() {
        grantor::config::check_bundle(bundle)?;
        roles.push("grantors");
    }
    Ok(roles)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bundle::bundle::pack;
    use bundle::key::SecretKey;
    use bundle::{BundleHeader, CanaryShare};

    use super::*;

    fn bundle(version: u64, files: &[(&str, &str)], key: &SecretKey) -> Bundle {
        let header = BundleHeader::new(version, 1, CanaryShare::ALL);
        let file = |(name, text): &(&str, &str)| ((*name).to_owned(), text.as_bytes().to_vec());
        let files: BTreeMap<_, _> = files.iter().map(file).collect();
        Bundle::open(pack(&header, &files, key).unwrap(), None).unwrap()
    }

    #[test]
    fn check_bundle_rejects_contents_that_no_member_can_apply() {
        let key = SecretKey::from_seed([4; 32]);
        let check = |files: &[(&str, &str)]| {
            check_bundle(&bundle(7, files, &key)).map_err(|e| e.to_string())
        };
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
        assert_eq!(check(&good), Ok(vec!["gates", "grantors"]));
        assert_eq!(check(&good[1..]), Ok(vec!["grantors"]));
        let with = |name: &str, text: &'static str| {
            check(&good.map(|(have, was)| (have, if have == name { text } else { was })))
        };
        for (name, text, expect) in [
            (
                "gate.toml",
                "[front]\ninterface = 'x'\n",
                "bundle 7: gate.toml:1:2: unknown field `front`",
            ),
            ("gate.toml", "[[policy]]\nprefix = 'x'\n", "bundle 7: gate.toml:2: policy.prefix"),
            ("gate.toml", "", "bundle 7: gate.toml:1: policy: no [[policy]]"),
            (
                "grantor.toml",
                "[policy]\nfile = 'none.lua'\n",
                "grantor.toml:2: policy.file: none.lua: not in the bundle",
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
            assert!(error.contains(expect), "{expect:?} is not in: {error}");
        }
        let error = check(&[("policy.lua", lua)]).unwrap_err();
        assert!(error.contains("bundle 7:1: grantor.toml: missing in the bundle"), "{error}");
    }
}
