//! Damaged and forged bundles: an accepted bundle equals, byte for byte, the packed one.

use super::*;

fn header() -> BundleHeader {
    BundleHeader::new(7, 1_800_000_000, CanaryShare::from_hundredths(1000).unwrap())
}

fn files() -> BTreeMap<String, Vec<u8>> {
    let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    BTreeMap::from([
        file("gate.toml", "[rules]\nversion = 'x'\n"),
        file("lists/deny.txt", "192.0.2.0/24\n"),
        file("empty", ""),
    ])
}

fn packed() -> (SecretKey, Vec<u8>) {
    let key = SecretKey::from_seed([7; 32]);
    let bytes = pack(&header(), &files(), &key).unwrap();
    (key, bytes)
}

/// Signs changed bytes, as another program with the key might.
fn re_sign(bytes: &[u8], key: &SecretKey) -> Vec<u8> {
    let mut bytes = bytes[..bytes.len() - TRAILER_LEN].to_vec();
    bytes.extend(key.public().as_bytes());
    bytes.extend(key.sign(&bytes));
    bytes
}

fn repack(bundle: &Bundle, key: &SecretKey) -> Vec<u8> {
    let files = bundle.files().map(|(name, content)| (name.to_owned(), content.to_vec()));
    pack(bundle.header(), &files.collect(), key).unwrap()
}

#[test]
fn open_returns_the_packed_files() {
    let (key, bytes) = packed();
    let bundle = Bundle::open(bytes.clone(), Some(&[key.public()])).unwrap();
    assert_eq!(*bundle.header(), header());
    assert_eq!(bundle.signer(), &key.public());
    let files = bundle.files().map(|(name, content)| (name.to_owned(), content.to_vec()));
    assert_eq!(files.collect::<BTreeMap<_, _>>(), self::files());
    assert_eq!(bundle.file("lists/deny.txt").unwrap(), b"192.0.2.0/24\n");
    assert_eq!(bundle.file("deny.txt"), None);
    assert_eq!(repack(&bundle, &key), bytes);
    // Another share has another signature of the same contents.
    let all = Bundle::open(bundle.release(CanaryShare::ALL, &key).unwrap(), None).unwrap();
    assert_eq!(all.contents(), bundle.contents());
    assert_eq!((all.header().canary, all.header().version), (CanaryShare::ALL, 7));
    assert_ne!(all.bytes(), bundle.bytes());
    assert!(!all.header().staged);
    let stage = bundle.sign_stage(bundle.header().canary, None, &key).unwrap();
    assert!(Bundle::open(stage.clone(), None).unwrap().header().staged);
    // The only difference is the flag, and another flag is refused.
    assert_eq!((bytes[31], stage[31]), (0, 1));
    let mut unknown = stage[..stage.len() - SIGNATURE_LEN].to_vec();
    unknown[31] = 4;
    let signature = key.sign(&unknown);
    unknown.extend(signature);
    assert!(Bundle::open(unknown, None).unwrap_err().to_string().contains("does not know"));
    // A label follows the header.
    let label: Label = "edge".parse().unwrap();
    let labelled = bundle.sign_stage(bundle.header().canary, Some(label), &key).unwrap();
    assert_eq!(labelled[31..37], *b"\x03\x04edge");
    let labelled = Bundle::open(labelled, None).unwrap();
    assert_eq!(labelled.header().label, Some(label));
    assert_eq!(labelled.contents(), bundle.contents());
    let other = "core".parse().unwrap();
    let none = CanaryShare::NONE;
    let header = BundleHeader { canary: none, ..*labelled.header() };
    assert!(header.is_for("any", &[other, label]) && !header.is_for("any", &[other]));
}

#[test]
fn flipped_bit_or_changed_length_is_refused() {
    let (key, bytes) = packed();
    let trusted = [key.public()];
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            // Also with any key trusted: no other key matches these bytes.
            assert!(Bundle::open(bad.clone(), Some(&trusted)).is_err(), "byte {at} bit {bit}");
            assert!(Bundle::open(bad, None).is_err(), "byte {at} bit {bit}");
        }
        assert!(Bundle::open(bytes[..at].to_vec(), None).is_err(), "{at} bytes");
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(Bundle::open(longer, None).unwrap_err(), BundleError::Signature);
}

#[test]
fn signed_damage_is_refused_or_a_canonical_bundle() {
    let (key, bytes) = packed();
    let (mut accepted, mut refused) = (0, 0);
    let body = bytes.len() - TRAILER_LEN;
    for at in 0..body {
        for mask in [1, 2, 4, 8, 16, 32, 64, 128, 0x55, 0xff] {
            let mut bad = bytes.clone();
            bad[at] ^= mask;
            let bad = re_sign(&bad, &key);
            match Bundle::open(bad.clone(), None) {
                // The encoding is canonical.
                Ok(bundle) => {
                    assert_eq!(repack(&bundle, &key), bad, "byte {at} by {mask}");
                    accepted += 1;
                }
                Err(bad) => {
                    assert!(!bad.to_string().is_empty());
                    refused += 1;
                }
            }
        }
        let cut = re_sign(&bytes[..at + TRAILER_LEN], &key);
        assert!(Bundle::open(cut, None).is_err(), "cut to {at}");
    }
    // Version, time and share may change, and letters of names that keep their order.
    assert!(accepted > 0 && refused > 2 * accepted, "{accepted} of {}", accepted + refused);
}

#[test]
fn bundle_of_an_untrusted_or_forged_signer_is_refused() {
    let (key, bytes) = packed();
    let other = SecretKey::from_seed([8; 32]);
    let forged = re_sign(&bytes, &other);
    let refused = Bundle::open(forged.clone(), Some(&[key.public()])).unwrap_err();
    assert_eq!(refused, BundleError::Signer(other.public()));
    assert!(refused.to_string().contains(&other.public().to_string()));
    assert!(Bundle::open(forged.clone(), Some(&[key.public(), other.public()])).is_ok());
    assert!(Bundle::open(forged, Some(&[])).is_err(), "no key is trusted");
    // The trusted key with the signature of another key.
    let mut bad = bytes.clone();
    let signature = other.sign(&bytes[..bytes.len() - SIGNATURE_LEN]);
    let at = bad.len() - SIGNATURE_LEN;
    bad[at..].copy_from_slice(&signature);
    assert_eq!(Bundle::open(bad, Some(&[key.public()])).unwrap_err(), BundleError::Signature);
}

#[test]
fn invalid_name_is_refused_by_pack_and_open() {
    let key = SecretKey::from_seed([7; 32]);
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
        assert!(matches!(refused, BundleError::Name { .. }), "{name:?}: {refused}");
        // As another program might pack it.
        let mut bytes = pack(&header(), &BTreeMap::from([("x".into(), vec![])]), &key).unwrap();
        bytes.truncate(bytes.len() - TRAILER_LEN);
        bytes.truncate(HEADER_LEN + ENTRY_LEN);
        bytes[HEADER_LEN..HEADER_LEN + 2].copy_from_slice(&(name.len() as u16).to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend([0; TRAILER_LEN]);
        let refused = Bundle::open(re_sign(&bytes, &key), None).unwrap_err();
        assert!(matches!(refused, BundleError::Name { .. }), "{name:?}: {refused}");
    }
    let long = BTreeMap::from([("x".repeat(MAX_NAME_LEN + 1), Vec::new())]);
    assert!(matches!(pack(&header(), &long, &key), Err(BundleError::Name { .. })));
    let long = BTreeMap::from([("x".repeat(MAX_NAME_LEN), Vec::new())]);
    assert!(Bundle::open(pack(&header(), &long, &key).unwrap(), None).is_ok());
}

#[test]
fn pack_and_open_check_bounds_and_duplicates() {
    let key = SecretKey::from_seed([7; 32]);
    let numbered = |count| (0..count).map(|at| (format!("{at:04}"), Vec::new())).collect();
    let full: BTreeMap<_, _> = numbered(MAX_FILES);
    let bytes = pack(&header(), &full, &key).unwrap();
    assert!(Bundle::open(bytes.clone(), None).is_ok());
    assert_eq!(pack(&header(), &numbered(MAX_FILES + 1), &key), Err(BundleError::Files(1025)));
    assert_eq!(pack(&header(), &numbered(0), &key), Err(BundleError::Files(0)));
    let large = BTreeMap::from([(
        "x".to_owned(),
        vec![0; MAX_BUNDLE_BYTES - HEADER_LEN - ENTRY_LEN - TRAILER_LEN],
    )]);
    assert!(matches!(pack(&header(), &large, &key), Err(BundleError::TooLarge(_))));
    assert!(matches!(
        Bundle::open(vec![0; MAX_BUNDLE_BYTES + 1], None),
        Err(BundleError::TooLarge(_))
    ));
    let none = BundleHeader { version: 0, ..header() };
    assert!(matches!(pack(&none, &files(), &key), Err(BundleError::Field(_))));
    // The second file gets the name of the first.
    let mut duplicate = bytes;
    let second = HEADER_LEN + 2 * (ENTRY_LEN + 4) - 4;
    assert_eq!(&duplicate[second..second + 4], b"0001");
    duplicate[second + 3] = b'0';
    let refused = Bundle::open(re_sign(&duplicate, &key), None).unwrap_err();
    assert_eq!(refused, BundleError::Order("0000".into()));
}
