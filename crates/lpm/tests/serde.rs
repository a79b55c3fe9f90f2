//! Maps in JSON, and back.

use fingerpost_lpm::{IpLpmMap, LpmMap};
use ipnet::{IpNet, Ipv4Net};

#[test]
fn map_is_an_object_in_order() {
    let text = r#"{"10.0.0.0/8":[1],"10.0.0.0/16":[],"10.1.0.0/16":[2,3]}"#;
    let map: LpmMap<Ipv4Net, Vec<u32>> = serde_json::from_str(text).unwrap();
    assert_eq!(map.len(), 3);
    assert_eq!(map[&"10.1.0.0/16".parse().unwrap()], [2, 3]);
    assert_eq!(serde_json::to_string(&map).unwrap(), text);
}

#[test]
fn both_families_are_one_object() {
    let text = r#"{"0.0.0.0/0":"a","192.0.2.1/32":"b","::/0":"c","2001:db8::/32":"d"}"#;
    let map: IpLpmMap<IpNet, String> = serde_json::from_str(text).unwrap();
    assert_eq!((map.v4.len(), map.v6.len()), (2, 2));
    assert_eq!(serde_json::to_string(&map).unwrap(), text);
}

#[test]
fn wrong_prefix_is_an_error_that_names_it() {
    let error =
        |text: &str| serde_json::from_str::<LpmMap<Ipv4Net, u32>>(text).unwrap_err().to_string();
    let host_bits = error(r#"{"10.0.0.1/8":1}"#);
    assert!(host_bits.contains("did you mean 10.0.0.0/8?"), "{host_bits}");
    assert!(error(r#"{"10.0.0.0/8":1,"10.0.0.0/8":2}"#).contains("duplicate prefix"));
    assert!(error(r#"{"::/0":1}"#).contains("is not an address or prefix"));
    assert!(error("[]").contains("a map from prefixes to values"));
}
