//! Bundles against damage: what is taken is, byte for byte, what was packed.

use super::*;

fn header() -> Header {
    Header { version: 7, created: 1_800_000_000, canary: Share::of(1000).unwrap() }
}

fn some() -> BTreeMap<String, Vec<u8>> {
    let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    BTreeMap::from([
        file("gate.toml", "[rules]\nversion = 'x'\n"),
        file("lists/deny.txt", "192.0.2.0/24\n"),
        file("empty", ""),
    ])
}

fn packed() -> (SecretKey, Vec<u8>) {
    let key = SecretKey::of([7; 32]);
    let bytes = pack(&header(), &some(), &key).unwrap();
    (key, bytes)
}

/// Signs bytes that were changed, as somebody with the key and another program might.
fn signed_anew(bytes: &[u8], key: &SecretKey) -> Vec<u8> {
    let mut bytes = bytes[..bytes.len() - TAIL].to_vec();
    bytes.extend(key.public().bytes());
    bytes.extend(key.sign(&bytes));
    bytes
}

fn again(bundle: &Bundle, key: &SecretKey) -> Vec<u8> {
    let files = bundle.files().map(|(name, content)| (name.to_owned(), content.to_vec()));
    pack(bundle.header(), &files.collect(), key).unwrap()
}

#[test]
fn what_was_packed_is_there_and_no_more() {
    let (key, bytes) = packed();
    let bundle = Bundle::open(bytes.clone(), Some(&[key.public()])).unwrap();
    assert_eq!(*bundle.header(), header());
    assert_eq!(bundle.signer(), &key.public());
    let files = bundle.files().map(|(name, content)| (name.to_owned(), content.to_vec()));
    assert_eq!(files.collect::<BTreeMap<_, _>>(), some());
    assert_eq!(bundle.file("lists/deny.txt").unwrap(), b"192.0.2.0/24\n");
    assert_eq!(bundle.file("deny.txt"), None);
    assert_eq!(again(&bundle, &key), bytes);
    // Another share is another signature of the same contents.
    let all = Bundle::open(bundle.release(Share::ALL, &key).unwrap(), None).unwrap();
    assert_eq!(all.contents(), bundle.contents());
    assert_eq!((all.header().canary, all.header().version), (Share::ALL, 7));
    assert_ne!(all.bytes(), bundle.bytes());
}

#[test]
fn every_bit_and_every_length_counts() {
    let (key, bytes) = packed();
    let trusted = [key.public()];
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            // Whoever is trusted: no other key fits these bytes either.
            assert!(Bundle::open(bad.clone(), Some(&trusted)).is_err(), "byte {at} bit {bit}");
            assert!(Bundle::open(bad, None).is_err(), "byte {at} bit {bit}");
        }
        assert!(Bundle::open(bytes[..at].to_vec(), None).is_err(), "{at} bytes");
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(Bundle::open(longer, None).unwrap_err(), BadBundle::Signature);
}

#[test]
fn damage_that_is_signed_is_refused_or_is_another_bundle() {
    let (key, bytes) = packed();
    let (mut taken, mut refused) = (0, 0);
    let body = bytes.len() - TAIL;
    for at in 0..body {
        for turn in [1, 2, 4, 8, 16, 32, 64, 128, 0x55, 0xff] {
            let mut bad = bytes.clone();
            bad[at] ^= turn;
            let bad = signed_anew(&bad, &key);
            match Bundle::open(bad.clone(), None) {
                // There is one way to write it.
                Ok(bundle) => {
                    assert_eq!(again(&bundle, &key), bad, "byte {at} by {turn}");
                    taken += 1;
                }
                Err(bad) => {
                    assert!(!bad.to_string().is_empty());
                    refused += 1;
                }
            }
        }
        let cut = signed_anew(&bytes[..at + TAIL], &key);
        assert!(Bundle::open(cut, None).is_err(), "cut to {at}");
    }
    // Version, time and share can be others; so can letters of names that keep their order.
    assert!(taken > 0 && refused > 2 * taken, "{taken} of {}", taken + refused);
}

#[test]
fn who_signs_is_known() {
    let (key, bytes) = packed();
    let other = SecretKey::of([8; 32]);
    let forged = signed_anew(&bytes, &other);
    let refused = Bundle::open(forged.clone(), Some(&[key.public()])).unwrap_err();
    assert_eq!(refused, BadBundle::Signer(other.public()));
    assert!(refused.to_string().contains(&other.public().to_string()));
    assert!(Bundle::open(forged.clone(), Some(&[key.public(), other.public()])).is_ok());
    assert!(Bundle::open(forged, Some(&[])).is_err(), "nobody is trusted");
    // The right key's name over another's signature.
    let mut bad = bytes.clone();
    let signature = other.sign(&bytes[..bytes.len() - SIGNATURE]);
    let at = bad.len() - SIGNATURE;
    bad[at..].copy_from_slice(&signature);
    assert_eq!(Bundle::open(bad, Some(&[key.public()])).unwrap_err(), BadBundle::Signature);
}

#[test]
fn what_leads_out_is_refused_when_packed_and_when_read() {
    let key = SecretKey::of([7; 32]);
    for name in [
        "/etc/passwd",
        "../x",
        "a/../x",
        "a/./x",
        ".",
        "..",
        "",
        "a//b",
        "a/",
        "a\\b",
        ".hidden",
        "a/.git/x",
        "a b",
        "ü",
        "a\0",
        "a\n",
    ] {
        let files = BTreeMap::from([(name.to_owned(), Vec::new())]);
        let refused = pack(&header(), &files, &key).unwrap_err();
        assert!(matches!(refused, BadBundle::Name { .. }), "{name:?}: {refused}");
        // As another program might pack it.
        let mut bytes = pack(&header(), &BTreeMap::from([("x".into(), vec![])]), &key).unwrap();
        bytes.truncate(bytes.len() - TAIL);
        bytes.truncate(HEAD + ENTRY);
        bytes[HEAD..HEAD + 2].copy_from_slice(&(name.len() as u16).to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend([0; TAIL]);
        let refused = Bundle::open(signed_anew(&bytes, &key), None).unwrap_err();
        assert!(matches!(refused, BadBundle::Name { .. }), "{name:?}: {refused}");
    }
    let long = BTreeMap::from([("x".repeat(LONGEST_NAME + 1), Vec::new())]);
    assert!(matches!(pack(&header(), &long, &key), Err(BadBundle::Name { .. })));
    let long = BTreeMap::from([("x".repeat(LONGEST_NAME), Vec::new())]);
    assert!(Bundle::open(pack(&header(), &long, &key).unwrap(), None).is_ok());
}

#[test]
fn there_are_bounds_and_no_duplicates() {
    let key = SecretKey::of([7; 32]);
    let files = |count| (0..count).map(|at| (format!("{at:04}"), Vec::new())).collect();
    let full: BTreeMap<_, _> = files(MOST_FILES);
    let bytes = pack(&header(), &full, &key).unwrap();
    assert!(Bundle::open(bytes.clone(), None).is_ok());
    assert_eq!(pack(&header(), &files(MOST_FILES + 1), &key), Err(BadBundle::Files(1025)));
    assert_eq!(pack(&header(), &files(0), &key), Err(BadBundle::Files(0)));
    let large = BTreeMap::from([("x".to_owned(), vec![0; MOST_BYTES - HEAD - ENTRY - TAIL])]);
    assert!(matches!(pack(&header(), &large, &key), Err(BadBundle::TooLarge(_))));
    assert!(matches!(Bundle::open(vec![0; MOST_BYTES + 1], None), Err(BadBundle::TooLarge(_))));
    let none = Header { version: 0, ..header() };
    assert!(matches!(pack(&none, &some(), &key), Err(BadBundle::Field(_))));
    // The name of the second file becomes that of the first.
    let mut twice = bytes;
    let second = HEAD + 2 * (ENTRY + 4) - 4;
    assert_eq!(&twice[second..second + 4], b"0001");
    twice[second + 3] = b'0';
    let refused = Bundle::open(signed_anew(&twice, &key), None).unwrap_err();
    assert_eq!(refused, BadBundle::Order("0000".into()));
}
